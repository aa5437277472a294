# What the Python package holds beside its modules (pyproject.toml): programs and libraries, and the
# sources of which the adapter for a version of torch is built on first use.
#
#   gapless/bin/gapless                gapless/lib/libgapless*.so, simgpu/     gapless/src/allocator, torch_plugin
install(TARGETS gapless_command COMPONENT wheel RUNTIME DESTINATION gapless/bin)
install(TARGETS gapless gapless_preload gapless_cuda gapless_core gapless_trace
  COMPONENT wheel LIBRARY DESTINATION gapless/lib ARCHIVE DESTINATION gapless/lib
  PUBLIC_HEADER DESTINATION gapless/include)
if(TARGET simgpu_front)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/lib/simgpu DESTINATION gapless/lib COMPONENT wheel
    USE_SOURCE_PERMISSIONS PATTERN "__pycache__" EXCLUDE)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/allocator DESTINATION gapless/src COMPONENT wheel
  FILES_MATCHING PATTERN "*.h" PATTERN "c_api*.cc")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/torch_plugin/adapter ${PROJECT_SOURCE_DIR}/torch_plugin/preload
  DESTINATION gapless/src/torch_plugin COMPONENT wheel FILES_MATCHING PATTERN "*.h" PATTERN "*.cc")
install(FILES ${PROJECT_SOURCE_DIR}/torch_plugin/exports.map
  DESTINATION gapless/src/torch_plugin COMPONENT wheel)
