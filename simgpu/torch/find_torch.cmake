# Installed CUDA builds of torch, and targets made for each of their versions.
#
#   for_each_torch(make_adapter)     calls make_adapter(2.11 .../site-packages/torch) and so on
#   use_torch(target torch_dir)      c10's headers and libraries for a target
set(GAPLESS_TORCH_DIR "" CACHE STRING
  "folders of installed CUDA builds of torch: .../site-packages/torch;...")

macro(for_each_torch function)
  foreach(given IN LISTS GAPLESS_TORCH_DIR)
    get_filename_component(torch_dir ${given} ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
    file(STRINGS ${torch_dir}/version.py torch_version REGEX "^__version__")
    string(REGEX MATCH "[0-9]+\\.[0-9]+" torch_version "${torch_version}")
    # c10's headers include CUDA's runtime.
    find_path(CUDA_RUNTIME_INCLUDE cuda_runtime_api.h
      PATHS /usr/local/cuda/include ${torch_dir}/../nvidia/cu13/include)
    if(CUDA_RUNTIME_INCLUDE)
      cmake_language(CALL ${function} ${torch_version} ${torch_dir})
    else()
      message(STATUS "nothing is built for torch ${torch_version}: no cuda_runtime_api.h")
    endif()
  endforeach()
endmacro()

function(use_torch target torch_dir)
  target_include_directories(${target} SYSTEM PRIVATE ${torch_dir}/include ${CUDA_RUNTIME_INCLUDE})
  target_link_libraries(${target} PRIVATE ${torch_dir}/lib/libc10_cuda.so ${torch_dir}/lib/libc10.so)
  # What c10 needs of CUDA comes with the process that loads it.
  target_link_options(${target} PRIVATE -Wl,--allow-shlib-undefined)
endfunction()
