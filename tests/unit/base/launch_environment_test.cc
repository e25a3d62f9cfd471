#include "holdfast/base/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"

namespace holdfast { namespace {

using testing::AllOf;
using testing::HasSubstr;

Variables torchrun_rank_3_of_8() {
  return {{"RANK", "3"},
          {"LOCAL_RANK", "1"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "10.0.0.1"},
          {"MASTER_PORT", "29511"}};
}
Variables open_mpi_rank_1_of_2() {
  return {{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"PMIX_NAMESPACE", "prterun-gpu1-77@1"}};
}
Variables mpich_rank_1_of_4() {
  return {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}};
}
Variables srun_rank_9_of_10() {
  return {{"SLURM_STEP_NUM_TASKS", "10"},
          {"SLURM_PROCID", "9"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "2"},
          {"SLURM_STEP_TASKS_PER_NODE", "4(x2),2"},
          {"SLURM_STEP_NODELIST", "gpu[007-008,020],login1"},
          {"SLURM_JOB_ID", "4711"},
          {"SLURM_STEP_ID", "2"}};
}
Variables pod_2_of_3() {
  return {{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "run-0"}, {"MASTER_PORT", "23456"}};
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

std::string refusal_of(const Variables& variables) {
  try {
    launch_of(variables);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

void expect_place(const LaunchEnvironment& seen, Launcher launcher, int rank, int world, int local,
                  std::optional<int> local_world) {
  EXPECT_STREQ(name_of(seen.launcher), name_of(launcher));
  EXPECT_EQ(seen.rank, rank);
  EXPECT_EQ(seen.world_size, world);
  EXPECT_EQ(seen.local_rank, local);
  EXPECT_EQ(seen.local_world_size, local_world);
}

TEST(LaunchEnvironment, NobodyLaunchedAWorldOfOne) {
  for (const Variables& variables :
       {Variables{}, Variables{{"MASTER_ADDR", "x"}}, Variables{{"WORLD_SIZE", "1"}},
        Variables{{"MASTER_PORT", "tcp://10.0.0.1:80"}}}) {
    const LaunchEnvironment seen = launch_of(variables);
    expect_place(seen, Launcher::none, 0, 1, 0, std::nullopt);
    EXPECT_TRUE(seen.one_host());
    EXPECT_EQ(seen.remark, "");
  }
}

TEST(LaunchEnvironment, FindsThePlaceThatTorchrunGives) {
  const LaunchEnvironment seen = launch_of(torchrun_rank_3_of_8());
  expect_place(seen, Launcher::torchrun, 3, 8, 1, 2);
  EXPECT_EQ(seen.master_address, "10.0.0.1");
  EXPECT_EQ(seen.master_port, 29511);
  EXPECT_EQ(seen.job, "");
  EXPECT_FALSE(seen.agent_keeps_store);
  EXPECT_FALSE(seen.one_host());
  // Others than torchrun set its variables too, and leave this one out.
  EXPECT_EQ(launch_of(without(torchrun_rank_3_of_8(), "LOCAL_WORLD_SIZE")).local_world_size, std::nullopt);
}

TEST(LaunchEnvironment, TorchrunsAgentKeepsTheStore) {
  const LaunchEnvironment seen = launch_of(with(
      torchrun_rank_3_of_8(), {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RUN_ID", "run7"}}));
  EXPECT_TRUE(seen.agent_keeps_store);
  EXPECT_EQ(seen.job, "run7");
  EXPECT_FALSE(
      launch_of(with(torchrun_rank_3_of_8(), {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).agent_keeps_store);
  EXPECT_EQ(launch_of(with(torchrun_rank_3_of_8(), {{"TORCHELASTIC_RUN_ID", "none"}})).job, "")
      << "its default names no job";
}

TEST(LaunchEnvironment, HoldfastLaunchHandsASocketDown) {
  const Variables own = {{"HOLDFAST_LAUNCH_JOB", "a1b2"}, {"HOLDFAST_LAUNCH_SOCKET", "7"}};
  const LaunchEnvironment seen = launch_of(with(torchrun_rank_3_of_8(), own));
  EXPECT_EQ(seen.job, "a1b2");
  EXPECT_EQ(seen.listening_socket, 7);
  // Inside of it, what an agent further out has set is not this launch's.
  EXPECT_FALSE(launch_of(with(torchrun_rank_3_of_8(), with(own, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})))
                   .agent_keeps_store);
}

TEST(LaunchEnvironment, FindsThePlaceThatOpenMpiGives) {
  const LaunchEnvironment seen = launch_of(open_mpi_rank_1_of_2());
  expect_place(seen, Launcher::open_mpi, 1, 2, 1, 2);
  EXPECT_EQ(seen.master_address, "127.0.0.1") << "all on one host";
  EXPECT_EQ(seen.master_port, kDefaultMasterPort);
  EXPECT_EQ(seen.job, "prterun-gpu1-77@1");
}

TEST(LaunchEnvironment, FindsThePlaceThatMpichGives) {
  expect_place(launch_of(mpich_rank_1_of_4()), Launcher::mpich, 1, 4, 1, 4);
  EXPECT_EQ(launch_of(mpich_rank_1_of_4()).master_address, "127.0.0.1");
}

TEST(LaunchEnvironment, FindsThePlaceThatSrunGives) {
  const LaunchEnvironment seen = launch_of(srun_rank_9_of_10());
  expect_place(seen, Launcher::slurm, 9, 10, 1, 2);
  EXPECT_EQ(seen.master_address, "gpu007");
  EXPECT_EQ(seen.job, "4711.2");
  // All ranks of a step come to the same port, the next step and the next job to another.
  const auto port = [](const Variables& more) {
    return launch_of(with(srun_rank_9_of_10(), more)).master_port;
  };
  EXPECT_EQ(seen.master_port, port({{"SLURM_PROCID", "8"}, {"SLURM_LOCALID", "0"}}));
  EXPECT_NE(seen.master_port, port({{"SLURM_STEP_ID", "3"}}));
  EXPECT_NE(seen.master_port, port({{"SLURM_JOB_ID", "4712"}}));
  for (int job = 0; job < 30'000; job += 7) {
    const auto one = port({{"SLURM_JOB_ID", std::to_string(job)}});
    EXPECT_TRUE(one >= 20'000 && one < 32'768) << one;
  }
  EXPECT_EQ(port({{"MASTER_PORT", "4000"}}), 4000) << "said by the user";
  EXPECT_EQ(launch_of(with(srun_rank_9_of_10(), {{"MASTER_ADDR", "head"}})).master_address, "head");
}

TEST(LaunchEnvironment, ABatchScriptWithoutSrunTrainsAlone) {
  const Variables batch = {
      {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "4711"}, {"SLURM_NTASKS", "1"}};
  expect_place(launch_of(batch), Launcher::none, 0, 1, 0, std::nullopt);
  EXPECT_EQ(launch_of(batch).remark, "");
  EXPECT_THAT(launch_of(with(batch, {{"SLURM_NTASKS", "8"}})).remark,
              AllOf(HasSubstr("8 tasks"), HasSubstr("srun")));
}

TEST(LaunchEnvironment, APodIsOneProcessAHost) {
  const LaunchEnvironment seen = launch_of(pod_2_of_3());
  expect_place(seen, Launcher::pod, 2, 3, 0, 1);
  EXPECT_EQ(seen.master_address, "run-0");
  EXPECT_EQ(seen.master_port, 23456);
}

// Each launcher wins over those after it, whole: every number is its own, also where the other's is nicer.
TEST(LaunchEnvironment, OneLauncherWinsAsAWhole) {
  const std::vector<std::pair<Launcher, Variables>> order = {{Launcher::torchrun, torchrun_rank_3_of_8()},
                                                             {Launcher::open_mpi, open_mpi_rank_1_of_2()},
                                                             {Launcher::mpich, mpich_rank_1_of_4()},
                                                             {Launcher::slurm, srun_rank_9_of_10()},
                                                             {Launcher::pod, pod_2_of_3()}};
  for (std::size_t inner = 0; inner < order.size(); ++inner) {
    for (std::size_t outer = inner + 1; outer < order.size(); ++outer) {
      const LaunchEnvironment alone = launch_of(order[inner].second);
      const LaunchEnvironment both = launch_of(with(order[outer].second, order[inner].second));
      SCOPED_TRACE(std::string(name_of(order[inner].first)) + " in " + name_of(order[outer].first));
      expect_place(both, order[inner].first, alone.rank, alone.world_size, alone.local_rank,
                   alone.local_world_size);
      EXPECT_EQ(both.job, alone.job);
    }
  }
}

TEST(LaunchEnvironment, WhatIsMissingIsNotTakenFromAnother) {
  // Torchrun's WORLD_SIZE is missing; Open MPI's and srun's do not count.
  const Variables half = without(torchrun_rank_3_of_8(), "WORLD_SIZE");
  EXPECT_THAT(refusal_of(with(with(open_mpi_rank_1_of_2(), srun_rank_9_of_10()), half)),
              AllOf(HasSubstr("WORLD_SIZE is not set"), HasSubstr("RANK=3"), HasSubstr("torchrun")));
  // srun's plug-in for MPICH sets these; srun is still who tells.
  const LaunchEnvironment seen =
      launch_of(with(srun_rank_9_of_10(), {{"PMI_RANK", "9"}, {"PMI_SIZE", "10"}}));
  expect_place(seen, Launcher::slurm, 9, 10, 1, 2);
}

TEST(LaunchEnvironment, EveryMissingVariableIsNamed) {
  const std::vector<std::pair<Variables, std::vector<std::string>>> all = {
      {torchrun_rank_3_of_8(), {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}},
      {open_mpi_rank_1_of_2(),
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"}},
      {mpich_rank_1_of_4(), {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"}},
      {srun_rank_9_of_10(), {"SLURM_PROCID", "SLURM_LOCALID"}},
      {pod_2_of_3(), {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}}};
  for (const auto& [variables, names] : all) {
    for (const std::string& name : names) {
      EXPECT_THAT(refusal_of(without(variables, name)), HasSubstr(name + " is not set")) << name;
      EXPECT_EQ(refusal_of(with(variables, {{name, ""}})), refusal_of(without(variables, name)))
          << "empty is unset";
    }
  }
  EXPECT_THAT(refusal_of(without(torchrun_rank_3_of_8(), "RANK")),
              AllOf(HasSubstr("RANK is not set"), HasSubstr("LOCAL_RANK=1"), HasSubstr("unset LOCAL_RANK")));
  EXPECT_THAT(refusal_of({{"WORLD_SIZE", "4"}}),
              AllOf(HasSubstr("RANK is not set"), HasSubstr("WORLD_SIZE=4")));
  // Two hosts, and none of them known.
  EXPECT_THAT(refusal_of(with(open_mpi_rank_1_of_2(),
                              {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}})),
              AllOf(HasSubstr("MASTER_ADDR is not set"), HasSubstr("2 processes (Open MPI)")));
  EXPECT_THAT(refusal_of(without(srun_rank_9_of_10(), "SLURM_STEP_NODELIST")),
              HasSubstr("MASTER_ADDR is not set"));
}

TEST(LaunchEnvironment, EveryNumberIsChecked) {
  for (const std::string name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT"}) {
    for (const std::string value : {"x", "-1", "3.5", "99999999999999999999", "1e3", " 1"}) {
      EXPECT_THAT(refusal_of(with(torchrun_rank_3_of_8(), {{name, value}})),
                  AllOf(HasSubstr("environment variable " + name + "=" + value), HasSubstr("whole number")));
    }
  }
  EXPECT_THAT(refusal_of(with(torchrun_rank_3_of_8(), {{"MASTER_PORT", "65536"}})), HasSubstr("1 to 65535"));
  EXPECT_THAT(refusal_of(with(torchrun_rank_3_of_8(), {{"WORLD_SIZE", "0"}})), HasSubstr("from 1 to"));
  EXPECT_THAT(refusal_of(with(torchrun_rank_3_of_8(), {{"RANK", "1\n2"}})), HasSubstr("RANK=1?2"))
      << "one line";
}

TEST(LaunchEnvironment, NumbersThatContradictEachOtherAreNamed) {
  const auto refusal = [](const Variables& more) { return refusal_of(with(torchrun_rank_3_of_8(), more)); };
  EXPECT_THAT(refusal({{"WORLD_SIZE", "3"}}), AllOf(HasSubstr("RANK=3"), HasSubstr("WORLD_SIZE=3")));
  EXPECT_THAT(refusal({{"LOCAL_WORLD_SIZE", "9"}}),
              AllOf(HasSubstr("LOCAL_WORLD_SIZE=9"), HasSubstr("WORLD_SIZE=8")));
  EXPECT_THAT(refusal({{"LOCAL_RANK", "2"}}),
              AllOf(HasSubstr("LOCAL_RANK=2"), HasSubstr("LOCAL_WORLD_SIZE=2")));
  EXPECT_THAT(refusal({{"LOCAL_RANK", "4"}, {"LOCAL_WORLD_SIZE", "8"}}),
              AllOf(HasSubstr("LOCAL_RANK=4"), HasSubstr("RANK=3")));
  EXPECT_THAT(refusal_of(with(srun_rank_9_of_10(), {{"SLURM_PROCID", "10"}})),
              HasSubstr("SLURM_STEP_NUM_TASKS=10"));
}

TEST(LaunchEnvironment, AWorldOfOneNeedsNoPlaceToMeet) {
  const LaunchEnvironment seen = launch_of({{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "1"}});
  expect_place(seen, Launcher::torchrun, 0, 1, 0, std::nullopt);
  EXPECT_EQ(seen.master_port, 0);
  EXPECT_TRUE(seen.one_host());
  EXPECT_TRUE(
      launch_of({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}}).one_host());
}

TEST(LaunchEnvironment, FindsTheFirstHostOfSlurmsLists) {
  EXPECT_EQ(first_host("gpu1"), "gpu1");
  EXPECT_EQ(first_host("gpu1,gpu2"), "gpu1");
  EXPECT_EQ(first_host("gpu[7-9,12]"), "gpu7");
  EXPECT_EQ(first_host("gpu[007]-ib,x[1-2]"), "gpu007-ib");
  EXPECT_EQ(first_host("r[03-04]n[10-15]"), "r03n10");
  EXPECT_EQ(first_host("r[3]n[1]x,y"), "r3n1x");
  for (const char* const bad : {"", ",gpu1", "gpu[", "gpu[]", "gpu[a-b]", "gpu[1-2", "r[1]n["}) {
    EXPECT_EQ(first_host(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(tasks_on_node("8", 0), 8);
  EXPECT_EQ(tasks_on_node("8", 1), std::nullopt);
  EXPECT_EQ(tasks_on_node("2(x3),1", 2), 2);
  EXPECT_EQ(tasks_on_node("2(x3),1", 3), 1);
  EXPECT_EQ(tasks_on_node("2(x3),1", 4), std::nullopt);
  for (const char* const bad : {"", "x", "2(x", "2(x)", "2(xx)", "2(x3", "0", "-1", "2(x0)", "(x2)"}) {
    EXPECT_EQ(tasks_on_node(bad, 0), std::nullopt) << bad;
  }
}

// What it reads is what is documented, and a process of this test is nobody's rank.
TEST(LaunchEnvironment, ReadsTheProcess) {
  for (const auto& [name, value] : torchrun_rank_3_of_8()) setenv(name.c_str(), value.c_str(), 1);
  const LaunchEnvironment seen = launch_environment();
  for (const auto& [name, value] : torchrun_rank_3_of_8()) unsetenv(name.c_str());
  expect_place(seen, Launcher::torchrun, 3, 8, 1, 2);
  std::vector<std::string> documented;
  for (const EnvVariable& variable : env_variables()) documented.emplace_back(variable.name);
  for (const Variables& variables :
       {torchrun_rank_3_of_8(), open_mpi_rank_1_of_2(), mpich_rank_1_of_4(), srun_rank_9_of_10()}) {
    for (const auto& entry : variables) EXPECT_THAT(documented, testing::Contains(entry.first));
  }
}

}}  // namespace holdfast
