# What `cmake --install` puts under the prefix:
#
#   bin/gapless                              the command
#   include/gapless/gapless.h, cxx/*.h       #include <gapless/gapless.h>
#   lib/libgapless.so, libgapless_cuda.so    for C and C++; to preload into CUDA programs
#   lib/libgapless_kernels.so                losses and checks of memory (gapless/kernels/*.h), where nvcc was there
#   lib/cmake/gapless, lib/pkgconfig         find_package(gapless): gapless::gapless; pkg-config gapless
#   lib/gapless/                             the Python package, with what `gapless run` and `gapless dryrun` preload
#
# It works after every build: what was not built is left out, and named. (pip installs torch_plugin/wheel.cmake's
# component instead.)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/gapless)

# The headers as they are when installed, for programs that are built with this tree, too.
set(PUBLIC_INCLUDE ${PROJECT_BINARY_DIR}/include)
foreach(header gapless.h cxx/caching_device_allocator.h cxx/memory_resource.h)
  set(source ${PROJECT_SOURCE_DIR}/allocator/${header})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(READ ${source} text)
  string(REPLACE "\"allocator/gapless.h\"" "<gapless/gapless.h>" text "${text}")
  file(CONFIGURE OUTPUT ${PUBLIC_INCLUDE}/gapless/${header} CONTENT "${text}" @ONLY)
endforeach()
target_include_directories(gapless INTERFACE
  $<BUILD_INTERFACE:${PUBLIC_INCLUDE}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
add_library(gapless::gapless ALIAS gapless)
install(DIRECTORY ${PUBLIC_INCLUDE}/gapless DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

install(TARGETS gapless_command OPTIONAL)
install(TARGETS gapless EXPORT gapless OPTIONAL)
install(TARGETS gapless_cuda OPTIONAL)
if(TARGET gapless_kernels)
  install(TARGETS gapless_kernels OPTIONAL)
  install(FILES kernels/cross_entropy.h kernels/integrity.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gapless/kernels)
endif()
install(EXPORT gapless NAMESPACE gapless:: DESTINATION ${CMAKE_DIR} FILE gaplessTargets.cmake)
file(CONFIGURE OUTPUT gaplessConfig.cmake
  CONTENT "include(\${CMAKE_CURRENT_LIST_DIR}/gaplessTargets.cmake)\n" @ONLY)
write_basic_package_version_file(gaplessConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gaplessConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/gaplessConfigVersion.cmake DESTINATION ${CMAKE_DIR})
file(RELATIVE_PATH TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)  # wherever that is moved to
foreach(dir LIBDIR INCLUDEDIR)
  set(PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    set(PC_${dir} ${CMAKE_INSTALL_${dir}})
  endif()
endforeach()
configure_file(tools/install/gapless.pc.in gapless.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gapless.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The package, where the command finds it from its own place (../lib/gapless).
set(PACKAGE_DIR lib/gapless)
install_package(${PACKAGE_DIR} OPTIONAL)
install(DIRECTORY torch_plugin/python/gapless/ DESTINATION ${PACKAGE_DIR}
  FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
set(built "$<TARGET_FILE:gapless_command>;$<TARGET_FILE:gapless>;$<TARGET_FILE:gapless_cuda>"
  "$<TARGET_FILE:gapless_preload>")
macro(install_adapter version torch_dir)
  install(TARGETS gapless_torch-${version} OPTIONAL LIBRARY DESTINATION ${PACKAGE_DIR}/lib)
  list(APPEND built "$<TARGET_FILE:gapless_torch-${version}>")
endmacro()
for_each_torch(install_adapter)
if(TARGET simgpu)
  list(APPEND built "$<TARGET_FILE:simgpu>")
endif()
install(CODE "
foreach(file ${built})
  if(NOT EXISTS \"\${file}\")
    message(STATUS \"Not built, and so not installed: \${file}\")
  endif()
endforeach()")
