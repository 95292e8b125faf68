//! Tests that the simulated robot allocates no memory once it runs.

use robocache_sim::config::{SimConfig, StreamConfig};
use robocache_sim::lidar::{Lidar, PointBuffers};
use robocache_sim::schedule::{Schedule, Sensor};
use robocache_sim::signals;
use robocache_sim::table::{DEPTH_HEIGHT, DEPTH_WIDTH, DepthCamera, camera_pose_values};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

/// Allocator that counts the allocations of the calling thread only: the test harness has threads of its own.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to `System` unchanged; the counter is a thread-local `Cell` that is const-initialised
// and needs no destructor, so touching it allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's obligations are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are those of `System`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's obligations are those of `System`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_running_robot_allocates_nothing() {
    let mut config = SimConfig {
        duration_s: Some(2.0),
        ..SimConfig::default()
    };
    // many messages in flight, out of order
    config.streams.force = Some(StreamConfig {
        latency_jitter_ms: 50.0,
        ..StreamConfig::force()
    });
    let schedule = Schedule::new(&config).expect("valid");
    let lidar = Lidar::new();
    let mut points = PointBuffers::for_sweep();
    let mut features = [0.0; signals::CAMERA_DIM];
    let depth_camera = DepthCamera::new();
    let mut depths = vec![0; DEPTH_WIDTH * DEPTH_HEIGHT];

    let before = ALLOCATIONS.get();
    assert!(before > 0, "the counter counts");
    let mut samples = 0;
    for event in schedule {
        match event.sensor {
            Sensor::Camera => signals::camera_features(event.true_ns, black_box(&mut features)),
            Sensor::Force => drop(black_box(signals::wrench(event.true_ns))),
            Sensor::Proprio => drop(black_box(signals::proprio(event.true_ns))),
            Sensor::Lidar => lidar.cast(event.true_ns, black_box(&mut points)),
            Sensor::Depth => depth_camera.render(event.true_ns, black_box(&mut depths)),
            Sensor::CameraPose => drop(black_box(camera_pose_values(event.true_ns))),
        }
        samples += 1;
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!(samples > 3_000);
}
