//! Output of the benchmark: each result is a row, a line of JSON. `main.rs` describes the keys.

use crate::timing::{Times, percentile};

/// The part of an operation that is timed.
#[derive(Clone, Copy)]
pub enum Scope {
    /// Work on the device only, with inputs and outputs in device memory: the time of a CUDA graph, divided by the number of
    /// its calls.
    Device,
    /// The whole operation, from a message in host memory to an output in host memory.
    Host,
}

/// Printer of result rows. It stores the device's copy rate, with which later rows are compared.
#[derive(Default)]
pub struct Rows {
    copy_gbps: Option<f64>,
}

impl Rows {
    /// Prints a row. `touched_bytes` is the number of bytes that one call reads or writes, each counted once.
    pub fn add(
        &mut self,
        op: &str,
        config: &str,
        backend: &str,
        scope: Scope,
        times: impl Into<Times>,
        touched_bytes: usize,
    ) {
        let times = times.into();
        let (p50, p99) = (percentile(&times.us, 0.5), percentile(&times.us, 0.99));
        let gbps = touched_bytes as f64 / p50 / 1e3;
        let (scope, of_copy) = match (scope, self.copy_gbps) {
            (Scope::Device, Some(copy)) if touched_bytes > 0 => ("device", format!("{:.3}", gbps / copy)),
            (Scope::Device, _) => ("device", "null".to_owned()),
            (Scope::Host, _) => ("host", "null".to_owned()),
        };
        let median = |times: &[f64]| match times {
            [] => "null".to_owned(),
            times => format!("{:.2}", percentile(times, 0.5)),
        };
        println!(
            r#"{{"op":"{op}","config":"{config}","backend":"{backend}","scope":"{scope}","us_p50":{p50:.2},"us_p99":{p99:.2},"us_early_off":{},"us_alone":{},"sets":{},"touched_bytes":{touched_bytes},"gbps":{gbps:.1},"of_copy":{of_copy}}}"#,
            median(&times.early_off),
            median(&times.alone),
            times.sets.map_or("null".to_owned(), |sets| sets.to_string()),
        );
    }

    /// Prints the output row of a copy within the device, and stores its rate, with which later rows are compared.
    pub fn add_copy(&mut self, config: &str, times: Times, bytes: usize) {
        self.copy_gbps = Some(bytes as f64 / percentile(&times.us, 0.5) / 1e3);
        self.add("ceiling", config, "cuda", Scope::Device, times, bytes);
    }
}
