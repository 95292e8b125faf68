//! `robocache.ring/1` between real processes: consumers read what was published, whichever process dies, and whatever
//! a peer does.
//!
//! This binary starts itself, with a role in the environment. Two settings are read from there, too:
//! `ROBOCACHE_TEST_RING_MESSAGES` is the number of payloads (20,000 by default). With `ROBOCACHE_TEST_RING_DEVICE=1` the slots
//! are on the first device, which needs the feature `cuda`.
//!
//! ```sh
//! ROBOCACHE_TEST_RING_MESSAGES=1000000 cargo test --release --no-default-features --test rings killed -- --nocapture
//! LD_LIBRARY_PATH=$PWD/target/emulator ROBOCACHE_TEST_RING_DEVICE=1 \
//!   cargo test --release --no-default-features --features cuda --test rings processes -- --nocapture
//! ```

#![allow(clippy::unwrap_used)]

mod consumer;
mod hostile;
mod processes;
mod producer;
mod support;

/// Runs the role that the environment names, in a process that this binary has started.
#[test]
fn role() {
    let Ok(role) = std::env::var(support::ROLE) else {
        return;
    };
    // No process outlives the test that started it.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["producer", tag, number] => producer::run(tag, number.parse().unwrap()),
        ["lossless-producer", tag, messages] => producer::run_lossless(tag, messages.parse().unwrap()),
        ["consumer", tag, number] => consumer::run(tag, number.parse().unwrap()),
        ["lossless-consumer", tag, number, is_first] => {
            consumer::run_lossless(tag, number.parse().unwrap(), is_first == "first");
        }
        ["few-descriptors"] => hostile::with_few_descriptors(),
        _ => panic!("no role: {role}"),
    }
}
