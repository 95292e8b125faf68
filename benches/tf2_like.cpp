// Computes one robot's observations as ROS's tf2 computes a transform (tf2/src/cache.cpp). A stream is a list, newest first. Each
// lookup walks it from the newest sample on to the two samples around its target. It interpolates in double; slerp uses acos and
// sin.

// Usage: `tf2_like STREAMS OUT linear|mixed`. Reads the streams that mode_peers.py writes, writes the observations to OUT as
// float32, and prints the time of each in us.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <list>
#include <vector>

namespace {

constexpr int WINDOW = 16, COLUMNS = 149;
constexpr int64_t STEP_NS = 20'000'000, KEPT_NS = 10'000'000'000;

template <size_t DIM>
struct Stream {
  struct Sample {
    int64_t stamp;
    std::array<float, DIM> values;
  };

  std::vector<Sample> all;
  size_t next = 0;
  std::list<Sample> cache;

  explicit Stream(std::ifstream& file) {
    int64_t count = 0;
    file.read(reinterpret_cast<char*>(&count), sizeof count);
    all.resize(count);
    for (Sample& sample : all) file.read(reinterpret_cast<char*>(&sample.stamp), sizeof sample.stamp);
    for (Sample& sample : all) file.read(reinterpret_cast<char*>(&sample.values), sizeof sample.values);
  }

  // Inserts samples until one is after `time`, and drops those that are more than KEPT_NS older than the newest.
  void insert_past(int64_t time) {
    while (cache.empty() || cache.front().stamp <= time) {
      cache.push_front(all[next++]);
      while (cache.back().stamp + KEPT_NS < cache.front().stamp) cache.pop_back();
    }
  }

  // Finds the newest sample at or before `time`. The sample before it in the list is after `time`.
  typename std::list<Sample>::const_iterator at_or_before(int64_t time) const {
    return std::find_if(cache.begin(), cache.end(), [&](const Sample& sample) { return sample.stamp <= time; });
  }
};

double angle_between(double a, double b, double ratio) {
  constexpr double turn = 2 * M_PI;
  double d = b - a;
  d -= turn * std::nearbyint(d / turn);
  const double value = a + ratio * d;
  return value - turn * std::nearbyint(value / turn);
}

void slerp(const float* a, const float* b, double ratio, float* out) {
  double dot = 0, aa = 0, bb = 0;
  for (int i = 0; i < 4; i++) {
    dot += double(a[i]) * b[i];
    aa += double(a[i]) * a[i];
    bb += double(b[i]) * b[i];
  }
  const double sign = dot < 0 ? -1 : 1;
  const double theta = std::acos(std::min(1.0, std::abs(dot) / std::sqrt(aa * bb)));
  if (theta == 0) {
    std::memcpy(out, a, 4 * sizeof(float));
    return;
  }
  const double scale = 1 / std::sin(theta);
  const double s0 = std::sin((1 - ratio) * theta) * scale, s1 = std::sin(ratio * theta) * scale * sign;
  for (int i = 0; i < 4; i++) out[i] = float(s0 * a[i] + s1 * b[i]);
}

template <size_t DIM>
void lookup(const Stream<DIM>& stream, int64_t time, bool mixed, float* out) {
  auto one = stream.at_or_before(time);
  auto two = std::prev(one);
  const double ratio = double(time - one->stamp) / double(two->stamp - one->stamp);
  const float *a = one->values.data(), *b = two->values.data();
  for (size_t i = 0; i < DIM; i++) {
    if (mixed && i < 7) out[i] = float(angle_between(a[i], b[i], ratio));
    else if (mixed && i == 7) slerp(a + i, b + i, ratio, out + i), i += 3;
    else out[i] = float(a[i] + ratio * (double(b[i]) - a[i]));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: tf2_like STREAMS OUT linear|mixed\n"), 2;
  std::ifstream file(argv[1], std::ios::binary);
  const bool mixed = std::strcmp(argv[3], "mixed") == 0;
  Stream<128> camera(file);
  Stream<15> arm(file);
  Stream<6> force(file);
  int64_t count = 0;
  file.read(reinterpret_cast<char*>(&count), sizeof count);
  std::vector<int64_t> targets(count);
  file.read(reinterpret_cast<char*>(targets.data()), std::streamsize(count * sizeof(int64_t)));
  if (!file) return std::fprintf(stderr, "%s is too short\n", argv[1]), 1;

  std::ofstream out(argv[2], std::ios::binary);
  std::vector<float> observation(WINDOW * COLUMNS);
  for (int64_t target : targets) {
    camera.insert_past(target);
    arm.insert_past(target);
    force.insert_past(target);
    const auto start = std::chrono::steady_clock::now();
    for (int row = 0; row < WINDOW; row++) {
      const int64_t time = target - (WINDOW - 1 - row) * STEP_NS;
      float* values = &observation[size_t(row) * COLUMNS];
      std::memcpy(values, camera.at_or_before(time)->values.data(), 128 * sizeof(float));
      lookup(arm, time, mixed, values + 128);
      lookup(force, time, false, values + 143);
    }
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
    std::printf("%.3f\n", taken.count());
    out.write(reinterpret_cast<const char*>(observation.data()), std::streamsize(observation.size() * sizeof(float)));
  }
  return 0;
}
