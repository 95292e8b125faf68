//! The figures, one JSON line each.

/// What the times are of.
#[derive(Clone, Copy)]
pub enum Scope {
    /// The work on the device alone, inputs and outputs there: a graph of many launches, divided.
    Device,
    /// The whole operation, from a message in host memory to an output in host memory.
    Host,
}

/// Prints a row for each measurement, and holds it against the copy rate once that is known.
#[derive(Default)]
pub struct Rows {
    copy_gbps: Option<f64>,
}

impl Rows {
    /// Prints a row. `bytes` are those that must move, each counted once; `times` are in us.
    pub fn add(&mut self, op: &str, config: &str, backend: &str, scope: Scope, mut times: Vec<f64>, bytes: usize) {
        times.sort_by(f64::total_cmp);
        let at = |part: f64| times[(part * (times.len() - 1) as f64).round() as usize];
        let (p50, p99) = (at(0.5), at(0.99));
        let gbps = bytes as f64 / p50 / 1e3;
        let (scope, of_copy) = match (scope, self.copy_gbps) {
            (Scope::Device, Some(copy)) if bytes > 0 => ("device", format!("{:.3}", gbps / copy)),
            (Scope::Device, _) => ("device", "null".to_owned()),
            (Scope::Host, _) => ("host", "null".to_owned()),
        };
        println!(
            r#"{{"op":"{op}","config":"{config}","backend":"{backend}","scope":"{scope}","us_p50":{p50:.2},"us_p99":{p99:.2},"bytes":{bytes},"gbps":{gbps:.1},"of_copy":{of_copy}}}"#
        );
    }

    /// Prints the row of the device's copy rate and holds the rows after it against that.
    pub fn add_copy(&mut self, config: &str, times: Vec<f64>, bytes: usize) {
        let mut sorted = times.clone();
        sorted.sort_by(f64::total_cmp);
        self.copy_gbps = Some(bytes as f64 / sorted[sorted.len() / 2] / 1e3);
        self.add("ceiling", config, "cuda", Scope::Device, times, bytes);
    }
}
