#include "tools/last_words.h"

#include <fstream>

#include <gtest/gtest.h>

#include "allocator/base/utf8.h"

namespace gapless::tools {
namespace {

std::string why(const std::string& text) {
  return why_it_ended(without_launcher(lines_said(text)));
}

TEST(LastWords, AreTheExceptionWhateverItsMessageGoesOnWith) {
  EXPECT_EQ(why("loading\n"
                "Traceback (most recent call last):\n"
                "  File \"train.py\", line 3, in <module>\n"
                "    import requests\n"
                "pkg.NotFound: the 'requests' distribution was not found.\n"
                "Try: pip install requests\n"),
            "pkg.NotFound: the 'requests' distribution was not found.");
  EXPECT_EQ(why("usage: train.py [--lr LR]\n\ntrain.py: error: unrecognized arguments: --lt\n\n"),
            "train.py: error: unrecognized arguments: --lt");
  EXPECT_EQ(why("Traceback (most recent call last):\n  File \"a.py\", line 1\n"
                "ImportError: \n\n        torchao not installed.\n        See the guide.\n"),
            "ImportError: torchao not installed.");
  EXPECT_EQ(why(""), "");
  EXPECT_EQ(why("Traceback (most recent call last):\n  File \"a.py\", line 1\nImportError: \n"
                "From version 2.9 on, b is required.\nInstall it:\n  pip install b\n"),
            "ImportError: From version 2.9 on, b is required.");
  EXPECT_EQ(why("Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: \n"
                "\nDuring handling of the above exception, another exception occurred:\n\n"
                "Traceback (most recent call last):\n  File \"a.py\", line 3\nBusyError: \n"),
            "BusyError:");
}

TEST(LastWords, AreTheLastExceptionThatIsNoLaunchers) {
  const std::string first =
      "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 'x'\n";
  const std::string second =
      "\nDuring handling of the above exception, another exception occurred:\n\n"
      "Traceback (most recent call last):\n  File \"a.py\", line 3, in g\nValueError: no x\n";
  EXPECT_EQ(why(first + second), "ValueError: no x");
  const std::string launcher =
      "Traceback (most recent call last):\n  File \"/bin/torchrun\", line 8, in <module>\n"
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
      "====================\ntrain.py FAILED\n====================\n";
  EXPECT_EQ(why(first + second + launcher), "ValueError: no x");
  EXPECT_EQ(why("[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a.py\", line 1\n"
                "[rank1]: RuntimeError: shapes\n" +
                launcher),
            "RuntimeError: shapes");
  EXPECT_EQ(why(launcher), "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:");
}

// As torchrun of PyTorch 2.11 has them, but for the frames between.
std::string words_of_torchrun(const std::string& status) {
  return "W1129 15:35:50.604000 22815 torch/distributed/elastic/multiprocessing/api.py:1012] "
         "Sending process 22819 closing signal SIGTERM\n"
         "E1129 15:35:50.669000 22815 torch/distributed/elastic/multiprocessing/api.py:986] failed "
         "(exitcode: " +
         status +
         ") local_rank: 1 (pid: 22820) of binary: /bin/python\n"
         "Traceback (most recent call last):\n"
         "  File \"/bin/torchrun\", line 8, in <module>\n"
         "    raise ChildFailedError(\n"
         "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
         "====================\ntrain.py FAILED\n"
         "[1]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 22819)\n"
         "Root Cause (first observed failure):\n"
         "[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : " +
         status +
         " (pid: 22820)\n"
         "====================\n";
}

TEST(LastWords, SayWhatAnExceptionWasRaisedFrom) {
  const auto raised = [](const std::string& exception) {
    return "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n" + exception + "\n";
  };
  const std::string from =
      "\nThe above exception was the direct cause of the following exception:\n\n";
  const std::string symbol = "OSError: libaudio.so: undefined symbol: torch_what";
  const std::string load = "OSError: Could not load libaudio.so";
  EXPECT_EQ(why(raised(symbol) + from + raised(load)), load + ", caused by " + symbol);
  EXPECT_EQ(why(raised(symbol) + from + raised(load) + from + raised("ImportError: no audio")),
            "ImportError: no audio, caused by " + symbol);
  // As PyTorch raises in its process what a worker of a DataLoader raised.
  EXPECT_EQ(why(raised("KeyError: Caught KeyError in DataLoader worker process 0.\n"
                       "Original Traceback (most recent call last):\n"
                       "  File \"worker.py\", line 349, in _worker_loop\n"
                       "    data = fetcher.fetch(index)\n"
                       "KeyError: 'audio'")),
            "KeyError: 'audio' (KeyError: Caught KeyError in DataLoader worker process 0.)");
}

TEST(LastWords, AreTheChildsWhereALauncherSaysThatOneFailed) {
  const std::string usage = "usage: train.py [--lr LR]\ntrain.py: error: no such argument: --lt\n";
  EXPECT_EQ(why(usage + words_of_torchrun("2")), "train.py: error: no such argument: --lt");
  EXPECT_EQ(without_launcher(lines_said(usage + words_of_torchrun("2"))), lines_said(usage));
  EXPECT_EQ(why(usage +
                "Traceback (most recent call last):\n  File \"/bin/accelerate\", line 8\n"
                "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero "
                "exit status 2.\n"),
            "train.py: error: no such argument: --lt");
  // What it said before a signal ended it is no reason.
  for (const std::string& said :
       {"step 3\n" + words_of_torchrun("-11"),
        std::string("step 3\nTraceback (most recent call last):\n  File \"/bin/accelerate\"\n"
                    "subprocess.CalledProcessError: Command '['python']' died with "
                    "<Signals.SIGSEGV: 11>.\n"),
        words_of_torchrun("2")}) {
    EXPECT_EQ(without_launcher(lines_said(said)), lines_said(said));
    EXPECT_EQ(why(said).find("step"), std::string::npos);
  }
  EXPECT_EQ(why("Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'x'\n" +
                words_of_torchrun("-6")),
            "KeyError: 'x'");
}

TEST(LastWords, SayWhyInALineOrTwo) {
  std::string choices = "ValueError: model_type not in [";
  for (int i = 0; i < 200; ++i) choices += "'\xc3\xa9', ";
  const std::string said = why("Traceback (most recent call last):\n  File \"a.py\"\n" + choices);
  EXPECT_TRUE(choices.starts_with(said.substr(0, said.size() - 4)));
  EXPECT_EQ(said.substr(said.size() - 4), " ...");
  EXPECT_LE(said.size(), 304U);
  EXPECT_EQ(valid_utf8(said), said);
  EXPECT_EQ(why(choices), said);
}

TEST(LastWords, TellExceptionsFromWhatIsLoggedBesideThem) {
  const std::string said =
      "Traceback (most recent call last):\n  File \"a.py\", line 1\n"
      "[rank0]: socket.gaierror: [Errno -2] Name or service not known\n"
      "During handling of the above exception, another exception occurred:\n"
      "Traceback (most recent call last):\n  File \"a.py\", line 9\nOSError: no weights\n"
      "Retrying: Name or service not known\nWARNING:urllib3: Retrying\n";
  EXPECT_EQ(exceptions_in(lines_said(said)),
            (std::vector<std::string>{"socket.gaierror: [Errno -2] Name or service not known",
                                      "OSError: no weights"}));
  EXPECT_TRUE(exceptions_in(lines_said("fatal: no host\nERROR: no data\n")).empty());
}

TEST(LastWords, KnowWhatAProgressBarCameTo) {
  EXPECT_EQ(lines_said("a\r\n 1 %\r50 %\r100 %\n \t\nb"),
            (std::vector<std::string>{"a", "100 %", "b"}));
  EXPECT_EQ(lines_said("\x1b[31mNameError\x1b[39m\x1b[0;1m: x\x1b[K\n\x1b[0m\n\x1b["),
            (std::vector<std::string>{"NameError: x"}));
  EXPECT_EQ(last_of({"a", "b", "c"}, 2), (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(last_of({"a"}, 2), (std::vector<std::string>{"a"}));
}

TEST(LastWords, AreReadFromTheEndOfAFile) {
  const auto file = std::filesystem::path(::testing::TempDir()) / "last_words.txt";
  std::ofstream(file) << std::string(40'000, 'x') << "\nlast\n";
  const auto lines = lines_said_last(file);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_LT(lines[0].size(), 16U << 10);
  EXPECT_EQ(lines[1], "last");
  EXPECT_TRUE(lines_said_last(file / "none").empty());
}

TEST(LastWords, AnExceptionThatWasPassedOver) {
  const std::string traceback =
      "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    f()\n";
  EXPECT_EQ(exception_passed_over(lines_said("loss 1\nloss 2\n")), "");
  EXPECT_EQ(exception_passed_over(lines_said(traceback + "ValueError: no such column\ndone\n")),
            "ValueError: no such column");
  EXPECT_EQ(exception_passed_over(lines_said(
                traceback + "torch.OutOfMemoryError: CUDA out of memory. Tried\ndone\n")),
            "");
  EXPECT_EQ(
      exception_passed_over(lines_said("Exception ignored in: <function Pool.__del__ at 0x7f>\n" +
                                       traceback + "AttributeError: 'NoneType'\n")),
      "");
  EXPECT_EQ(exception_passed_over(
                lines_said("Exception ignored in: <function Pool.__del__ at 0x7f>\n" + traceback +
                           "AttributeError: 'NoneType'\n" + traceback + "KeyError: 'ids'\n")),
            "KeyError: 'ids'");
}

}  // namespace
}  // namespace gapless::tools
