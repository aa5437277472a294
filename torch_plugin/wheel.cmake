# What the Python package holds beside its modules (pyproject.toml): programs and libraries, and the
# sources of which the adapter for a version of torch is built on first use.
#
#   gapless/bin/gapless                gapless/lib/libgapless*.so, simgpu/     gapless/src/allocator, torch_plugin

# All of it but the command, in the folder `to`; what follows stands in every rule.
function(install_package to)
  install(TARGETS gapless gapless_preload gapless_cuda gapless_core gapless_trace ${ARGN}
    LIBRARY DESTINATION ${to}/lib ARCHIVE DESTINATION ${to}/lib)
  if(TARGET gapless_kernels)
    install(TARGETS gapless_kernels ${ARGN} LIBRARY DESTINATION ${to}/lib)
    install(FILES ${PROJECT_SOURCE_DIR}/kernels/cross_entropy.h ${PROJECT_SOURCE_DIR}/kernels/integrity.h
      DESTINATION ${to}/include/gapless/kernels ${ARGN})
  endif()
  install(FILES ${PROJECT_SOURCE_DIR}/allocator/gapless.h DESTINATION ${to}/include ${ARGN})
  if(TARGET simgpu_front)
    install(DIRECTORY ${CMAKE_BINARY_DIR}/lib/simgpu DESTINATION ${to}/lib ${ARGN}
      USE_SOURCE_PERMISSIONS PATTERN "__pycache__" EXCLUDE)
  endif()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/allocator DESTINATION ${to}/src ${ARGN}
    FILES_MATCHING PATTERN "*.h" PATTERN "c_api*.cc")
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/simgpu/torch DESTINATION ${to}/src/simgpu ${ARGN}
    FILES_MATCHING PATTERN "*.h" PATTERN "*.cc")
  install(FILES ${PROJECT_SOURCE_DIR}/simgpu/process/api.h ${PROJECT_SOURCE_DIR}/simgpu/process/values.h
    DESTINATION ${to}/src/simgpu/process ${ARGN})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/torch_plugin/adapter ${PROJECT_SOURCE_DIR}/torch_plugin/preload
    DESTINATION ${to}/src/torch_plugin ${ARGN} FILES_MATCHING PATTERN "*.h" PATTERN "*.cc")
  install(FILES ${PROJECT_SOURCE_DIR}/kernels/integrity.h DESTINATION ${to}/src/kernels ${ARGN})
  install(FILES ${PROJECT_SOURCE_DIR}/torch_plugin/exports.map DESTINATION ${to}/src/torch_plugin ${ARGN})
endfunction()

# pip asks for this component, and nobody else is to get it.
install(TARGETS gapless_command COMPONENT wheel EXCLUDE_FROM_ALL RUNTIME DESTINATION gapless/bin)
install_package(gapless COMPONENT wheel EXCLUDE_FROM_ALL)

# Editable (pip install -e): its modules stay in the source tree, where the preloaded library looks for them then.
if(SKBUILD_STATE STREQUAL "editable")
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/package_folder "${PROJECT_SOURCE_DIR}/torch_plugin/python/gapless\n")
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/package_folder DESTINATION gapless/lib COMPONENT wheel)
endif()
