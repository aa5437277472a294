// gapless: replay, fit, inspect and convert GPU memory traces.
#include <cstdio>
#include <exception>

#include <fmt/format.h>

#include "allocator/base/error.h"
#include "allocator/gapless.h"
#include "tools/commands.h"

int main(int argc, char** argv) {
  using namespace gapless::tools;
  CLI::App app(
      "gapless: a GPU memory allocator that leaves no gap, and tools to see what it saves.\n"
      "\n"
      "Examples:\n"
      "  gapless run -- python train.py                      with gapless as PyTorch's allocator\n"
      "  gapless replay snapshot.pickle                      how much would each allocator "
      "reserve?\n"
      "  gapless fit snapshot.pickle --allocator gapless     the smallest card it runs on\n"
      "  gapless inspect snapshot.pickle                     where did the memory go?\n"
      "  gapless convert snapshot.pickle -o run.gtrace       a file 20 times smaller\n"
      "  gapless dryrun --gpu 16GiB -- python train.py       does it fit? no GPU needed\n"
      "\n"
      "A snapshot is what torch.cuda.memory._dump_snapshot() writes.\n"
      "Exit status: 0 done, 2 bad input, 3 something did not fit.",
      "gapless");
  app.set_version_flag("--version", gapless_version());
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  int status = kExitOk;
  add_run(app, status);
  add_replay(app, status);
  add_fit(app, status);
  add_inspect(app, status);
  add_convert(app, status);
  add_dryrun(app, status);
  add_generate(app, status);
  add_options(app, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return kExitBadInput;
  } catch (const gapless::InputError& error) {
    std::fflush(stdout);
    fmt::print(stderr, "gapless: {}\n", error.what());
    return kExitBadInput;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    fmt::print(stderr, "gapless: internal error: {}\n", error.what());
    return kExitInternal;
  }
  return status;
}
