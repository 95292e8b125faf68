//! Plugin `kinematics`: runs an operation for each entry of its section.
//!
//! A row that can't be used is counted with the reason; the other rows of its message are published.

use crate::app::{AppError, BuildContext, Dropped, Fault, Operation, Outbox, Registration};
use robocache_device::Device;
use robocache_ops::kinematics::{InputError, Kinematics, KinematicsConfig, Product, Reason};
use robocache_stream::{Layout, Message, SamplesError, Selection};

plugin! {
    /// Plugin that computes poses, Jacobians and twists from joints, or joints from poses, as each entry of `kinematics:` says.
    /// The section `chains:` has the kinematic chains.
    KinematicsPlugin(KinematicsConfig), "kinematics": "Makes poses, Jacobians and twists of joints, and joints of poses."
}

fn build(config: KinematicsConfig, context: &mut BuildContext<'_>) -> Result<(), AppError> {
    config.validate().map_err(|error| context.refused(&error))?;
    for (i, entry) in config.entries.iter().enumerate() {
        let chain = context.chain(&format!("[{i}].chain"), &entry.chain)?;
        let kinematics = Kinematics::new(entry, i, &chain).map_err(|error| context.refused(&error))?;
        let outputs: Vec<String> = entry.outputs().collect();
        // No two entries share an output.
        let first = outputs.first().map_or("", String::as_str);
        context.add_operation(Registration {
            name: format!("{}/{first}", context.name()),
            inputs: vec![entry.input.clone()],
            operation: Box::new(KinematicsEntry {
                layouts: vec![Layout::default(); outputs.len()],
                kinematics,
            }),
            outputs,
        });
    }
    Ok(())
}

/// The operation of one entry of the section `kinematics:`.
struct KinematicsEntry {
    kinematics: Kinematics,
    /// Layout of the last message on each output.
    layouts: Vec<Layout>,
}

impl KinematicsEntry {
    /// Publishes one result (pose, Jacobian, twist or joints) of the message that was read last. `output` is the index of the
    /// result, and of the output for it.
    fn publish(&mut self, output: usize, message: &Message, out: &mut Outbox<'_>) {
        let kinematics = &mut self.kinematics;
        let product = kinematics.products()[output];
        if !kinematics.has(product) {
            out.dropped(0, Dropped::Length);
            out.fault(
                0,
                "no velocities, and no `twist` is published (needed: one for each joint of the chain)",
            );
            return;
        }
        let layout = &mut self.layouts[output];
        kinematics.layout_into(product, layout);
        out.send(output, layout, |payload, header| {
            kinematics.write(product, payload);
            kinematics.describe(product, message, header);
        });
    }

    /// Counts and logs the rows that are not used, with the reason. Warns of a change of posture (a jump between solutions of the
    /// inverse kinematics), with its stamp.
    fn report(&self, message: &Message, out: &mut Outbox<'_>) {
        if let Some((_, row)) = self.kinematics.changes() {
            let stamp_ns = message.stamps()[row];
            let text = format_args!("the joints change to another posture at {stamp_ns} ns, and `branch` goes up");
            out.warn(0, "changes of posture", text);
        }
        for refused in self.kinematics.refused() {
            out.dropped(0, why_row(&refused.reason));
            match refused.reason {
                Reason::Unreachable { .. } => out.warn(0, "poses out of reach", refused),
                _ => out.fault(0, refused),
            }
        }
    }
}

impl Operation for KinematicsEntry {
    fn input(&mut self, _: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let read = self.kinematics.read(message);
        read.inspect_err(|error| out.dropped(0, why_message(error)))?;
        let (products, base) = (self.kinematics.products(), self.kinematics.base());
        let frame_id = message.header.frame_id.get().unwrap_or_default();
        if products.contains(&Product::Joints) && !frame_id.is_empty() && frame_id != base {
            let text = format_args!("its poses are in the frame `{frame_id}`, and are taken as those in `{base}`");
            out.warn_seldom(0, "another frame", text);
        }
        if let Some(implausible) = self.kinematics.implausible() {
            out.warn_seldom(0, "values far beyond the limits", implausible);
        }
        if let Some(unnamed) = self.kinematics.unnamed() {
            out.warn_seldom(0, "names of no joint", unnamed);
        }
        for output in 0..products.len() {
            self.publish(output, message, out);
        }
        self.report(message, out);
        if let Some(mut figures) = out.figures() {
            figures.computed(self.kinematics.compute_time(), Device::Cpu, 0);
        }
        Ok(())
    }

    fn selection(&self, _: usize) -> Selection {
        self.kinematics.selection().clone()
    }
}

/// Converts the error of a refused message to the reason that the diagnostics count.
fn why_message(error: &InputError) -> Dropped {
    match error {
        InputError::Samples(SamplesError::NoStamp) => Dropped::Stamp,
        _ => Dropped::Length,
    }
}

/// Converts the error of a refused row to the reason that the diagnostics count.
fn why_row(reason: &Reason) -> Dropped {
    if reason.is_range() {
        Dropped::Range
    } else if reason.is_unreachable() {
        Dropped::Unreachable
    } else {
        Dropped::NonFinite
    }
}

#[cfg(test)]
mod tests;
