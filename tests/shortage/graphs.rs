//! Whole graphs, whose messages are compared with those of the CPU.

use crate::common::input;
use crate::common::kind::kind;
use crate::emulator::{ALL, ALLOCATION, Emulator, LAUNCH, ONE};
use crate::works::{Empty, Keeper, Work, built, cloud, modality, play, same, signal, voxelize, works};
use robocache::app::{App, AppError, BuildContext, Config, Fault, Operation, Outbox, Plugin, Registration, plugins};
use robocache::device::Device;
use robocache::stream::Message;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// True if `auto` may choose a device of the kind that is tested. Otherwise prints that the test is skipped.
fn auto_takes_one() -> bool {
    if !kind().is_verified() {
        eprintln!("skipped: `auto` takes no device of {}", kind());
    }
    kind().is_verified()
}

/// Plays `work` once for every `step`-th call to the driver, which is refused. Compares the messages with the CPU's, and returns
/// the number of cases.
fn sweep(emulator: &Emulator, work: &Work, device: &str, step: usize) -> usize {
    let (wanted, wanted_faults) = play(work, "cpu");
    assert!(!wanted.published.is_empty(), "{}: nothing is published", work.name);
    let cases = emulator.sweep(step, |call_kind, first, count| {
        emulator.refuse(call_kind, first, count);
        let (came, faults) = play(work, device);
        let refused = emulator.refuse(call_kind, 0, ONE);
        let case = format!("{} on {device}, {call_kind} {first} of {count}", work.name);
        same(&case, &came.published, &wanted.published);
        assert_eq!(faults, wanted_faults, "{case}");
        if refused == 0 {
            assert!(
                came.devices.iter().any(|device| device != "cpu"),
                "{case}: {:?}",
                came.devices
            );
        }
        refused
    });
    eprintln!("{} on {device}: {cases} cases", work.name);
    cases
}

#[test]
fn whatever_is_refused_the_observations_are_those_of_the_cpu() {
    let Some(emulator) = Emulator::open() else { return };
    let cases: usize = works([300, 8, 5])
        .iter()
        .map(|work| sweep(&emulator, work, kind().name(), 1))
        .sum();
    assert!(cases > 500, "{cases} cases");
}

/// The grids of this test are larger and its cases fewer, since `auto` leaves small work to the CPU.
#[test]
fn under_auto_they_are_too() {
    let Some(emulator) = Emulator::open().filter(|_| auto_takes_one()) else {
        return;
    };
    let cases: usize = works([1100, 32, 33_000])
        .iter()
        .map(|work| sweep(&emulator, work, "auto", 7))
        .sum();
    assert!(cases > 50, "{cases} cases");
}

#[test]
fn the_rings_of_a_window_of_one_hold_few_grids() {
    let Some(_emulator) = Emulator::open() else { return };
    let cells = 64 * 64 * 64;
    let work = Work {
        name: "large grids",
        config: format!(
            "plugins: [{{ {} }}, {{ fuse: {{ rate_hz: 10, max_device_mb: 12, modalities: [{}] }} }}]",
            voxelize("dense", [64, 64, 64]).replace("count, mean_z", "count"),
            modality("voxels", cells, "previous").replace("25", "0"),
        ),
        published: &["fused"],
        messages: (1..9).map(|i| ("lidar", cloud(100 * i, 1000))).collect(),
    };
    let (came, _) = play(&work, kind().name());
    same("large grids", &came.published, &play(&work, "cpu").0.published);
    assert!(
        came.devices.iter().all(|device| *device == format!("{}:0", kind())),
        "{:?}",
        came.devices
    );
    let most = 8 * cells as i64 * size_of::<f32>() as i64;
    assert!(
        came.device_bytes.iter().all(|&bytes| bytes < most),
        "{:?}",
        came.device_bytes
    );
}

#[test]
fn what_is_handed_on_counts_in_the_memory_of_the_operation_that_sends_it() {
    let Some(_emulator) = Emulator::open() else { return };
    let works = works([300, 8, 5]);
    let most = |name: &str| {
        let work = works.iter().find(|work| work.name == name).unwrap();
        let (came, _) = play(work, kind().name());
        let voxels = came
            .published
            .iter()
            .zip(&came.device_bytes)
            .filter(|(message, _)| message.output == "voxels");
        voxels.map(|(_, &bytes)| bytes).max().unwrap()
    };
    let grid = 2 * 8 * 8 * 4 * size_of::<f32>() as i64;
    assert!(most("voxelize, fuse, both published") >= most("dense") + grid);
}

/// Operation that takes grids on the device, for a while on the host, and on the device again.
#[derive(Clone, Default)]
struct Taker {
    came: Arc<Mutex<Vec<ReceivedGrid>>>,
}

/// Grid that the taker got: true if it was on a device, and its bytes.
type ReceivedGrid = (bool, Vec<u8>);

/// Indices of the grids that the taker takes on the host.
const ON_HOST: Range<usize> = 3..6;

impl Plugin for Taker {
    fn name(&self) -> &'static str {
        "taker"
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        let Empty {} = context.config()?;
        context.add_operation(Registration {
            name: "taker".into(),
            inputs: vec!["voxels".into()],
            outputs: Vec::new(),
            operation: Box::new(self.clone()),
        });
        Ok(())
    }
}

impl Operation for Taker {
    fn input(&mut self, _: usize, message: &Message, _: &mut Outbox<'_>) -> Result<(), Fault> {
        let mut on_host = Message::default();
        on_host.fetch(message)?;
        let values = on_host.flat().ok_or("a struct")?.bytes().to_vec();
        self.came.lock().unwrap().push((message.data().gpu().is_some(), values));
        Ok(())
    }

    fn device_of_input(&self, _: usize) -> Option<Device> {
        let count = self.came.lock().unwrap().len();
        (!ON_HOST.contains(&count)).then_some(Device::Gpu(kind(), 0))
    }
}

#[test]
fn where_an_input_is_wanted_may_change_and_a_device_without_memory_is_asked_once() {
    let Some(emulator) = Emulator::open() else { return };
    let play = |device: &str| {
        let taker = Taker::default();
        let config = voxelize("dense", [8, 8, 4]);
        let config = format!("device: {device}\nplugins: [{{ {config} }}, {{ taker: {{}} }}]");
        let app = App::new().with_config(Config::parse(Path::new("robot.yml"), &config).unwrap());
        let app = app.add_plugins(plugins::all()).add_plugin(taker.clone());
        let mut graph = app.build(|_| false).unwrap();
        let lidar = input(&graph, "lidar");
        for i in 0..30 {
            if i == ON_HOST.end {
                emulator.refuse(ALLOCATION, 1, ALL);
            }
            graph.message(lidar, &cloud(100 * (i as i64 + 1), 300), &mut Keeper::default());
        }
        assert!(graph.faults().all(|(_, count)| count == 0));
        let refused = emulator.refuse(ALLOCATION, 0, ONE);
        (taker.came.lock().unwrap().clone(), refused)
    };
    let (came, refused) = play(kind().name());
    let (wanted, _) = play("cpu");
    for (i, (came, wanted)) in came.iter().zip(&wanted).enumerate() {
        assert_eq!(came.0, i < ON_HOST.start, "{i}");
        assert!(came.1 == wanted.1, "{i}");
    }
    assert_eq!(came.len(), wanted.len());
    assert!((1..4).contains(&refused), "{refused} allocations were asked for");
}

/// Every launch is refused for a while. Messages made during that time are computed on the CPU.
#[test]
fn a_shortage_passes_and_the_device_is_tried_again() {
    let Some(emulator) = Emulator::open() else { return };
    let works = works([300, 8, 5]);
    let work = works.iter().find(|work| work.name == "voxelize, fuse").unwrap();
    let (wanted, _) = play(work, "cpu");
    let mut graph = built(work, kind().name());
    let mut sink = Keeper::default();
    let lidar = input(&graph, "lidar");
    for (i, (_, message)) in work.messages.iter().enumerate() {
        if i == 2 {
            emulator.refuse(LAUNCH, 1, ALL);
        }
        if i == 4 {
            emulator.refuse(LAUNCH, 0, ONE);
            std::thread::sleep(robocache::device::FIRST_RETRY + Duration::from_millis(100));
        }
        let before = sink.devices.len();
        graph.message(lidar, message, &mut sink);
        let wanted = if (2..4).contains(&i) {
            Device::Cpu
        } else {
            Device::Gpu(kind(), 0)
        }
        .to_string();
        assert!(
            (i == 0 || sink.devices.len() > before) && sink.devices[before..].iter().all(|device| *device == wanted),
            "{i}"
        );
    }
    graph.close_all(&mut sink);
    same("a shortage that passes", &sink.published, &wanted.published);
    assert!(graph.faults().all(|(_, count)| count == 0));
}

/// A lost device loses only the samples that it alone had.
#[test]
fn a_sample_of_the_host_on_which_its_device_fails_is_not_lost() {
    let Some(emulator) = Emulator::open().filter(|_| auto_takes_one()) else {
        return;
    };
    drop(emulator);
    // The launches that insert a sample of the host into its ring, which is every third sample.
    for launch in (9..80).step_by(11) {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "graphs::a_device_that_is_lost_in_a_child",
                "--ignored",
                "--nocapture",
            ])
            .env("EMULATOR_FAIL_LAUNCH", launch.to_string())
            .output()
            .unwrap();
        let [words, errors] = [&child.stdout, &child.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(
            errors.contains(&format!("launch {launch}, of fuse_insert")),
            "{launch}: {errors}"
        );
        assert!(
            child.status.success() && words.contains("1 passed"),
            "launch {launch}: {words}{errors}"
        );
    }
}

#[test]
#[ignore = "the test above runs it, each time in a process of its own"]
fn a_device_that_is_lost_in_a_child() {
    let rule = "{ input: signal, dim: 5, interpolation: previous, max_age_ms: 5 }";
    let work = Work {
        name: "a lost device",
        config: format!("plugins: [{{ mix: {{}} }}, {{ fuse: {{ rate_hz: 50, modalities: [{rule}] }} }}]"),
        published: &["fused"],
        messages: (1..40).map(|i| ("raw", signal(20 * i, 5))).collect(),
    };
    let (came, faults) = play(&work, "auto");
    let (wanted, _) = play(&work, "cpu");
    same("a lost device", &came.published, &wanted.published);
    // Only what the device alone had is counted as lost.
    let lost = faults.iter().filter(|(_, count)| *count > 0);
    assert_eq!(lost.collect::<Vec<_>>(), [&("fuse: input `signal`".to_owned(), 1)]);
    assert_eq!(came.devices.last().unwrap(), "cpu");
}
