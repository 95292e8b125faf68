//! What the tests of all operations use.

use robocache::device::cuda::{Gpu, device_count};
use robocache::time::Interpolation;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Mutex;

/// A line on stderr, whether the test passes or not.
pub fn say(line: &str) {
    // Not `eprintln!`, which the test harness keeps to itself.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The first device, or nothing and a line that says so.
pub fn gpu() -> Option<Gpu> {
    match device_count() {
        Ok(_) => Some(Gpu::open(0).unwrap()),
        Err(why) => {
            static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            if SAID.lock().unwrap().insert(test.clone()) {
                say(&format!("gpu: skipped {test}: {why}"));
            }
            None
        }
    }
}

/// Says how many cases a test ran on the device.
pub fn ran(gpu: &Gpu, what: &str, cases: usize) {
    say(&format!(
        "gpu: {what}: {cases} cases on {} (cuda:{})",
        gpu.name(),
        gpu.ordinal()
    ));
}

/// How many random cases to run: `ROBOCACHE_GPU_CASES`, else few.
pub fn random_cases(few: usize) -> usize {
    match std::env::var("ROBOCACHE_GPU_CASES") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => few,
    }
}

/// Numbers that look random and are the same in every run (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// An interpolation mode that devices compute.
    pub fn mode(&mut self) -> Interpolation {
        self.of(&modes())
    }

    /// In 0..below.
    pub fn below(&mut self, below: usize) -> usize {
        (self.bits() % below as u64) as usize
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// In -1..1.
    pub fn signed(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// The interpolation modes that devices compute.
pub fn modes() -> Vec<Interpolation> {
    Interpolation::ALL
        .into_iter()
        .filter(|mode| mode.is_on_cuda())
        .collect()
}
