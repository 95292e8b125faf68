//! Comparison node that publishes a dense voxel grid by dora's `send_output`. It computes the grid in its own memory, which
//! dora then copies.

use arrow::array::Float32Array;
use dora_node_api::dora_core::config::DataId;
use dora_node_api::{DoraNode, Event, Parameter};
use robocache::dora::read_message;
use robocache::ops;
use robocache::ops::voxelize::{CpuVoxelizer, VoxelizeConfig};
use robocache::stream::{Message, Selection, Selector};
use std::error::Error;
use std::time::Instant;

/// Runs the node until its input ends, with the section `voxelize:` of the configuration file `config`.
pub fn run(config: &str) -> Result<(), Box<dyn Error>> {
    let mut sections: serde_yaml::Mapping = serde_yaml::from_str(&std::fs::read_to_string(config)?)?;
    let section = sections.remove("voxelize").ok_or("there is no section `voxelize:`")?;
    let config: VoxelizeConfig = serde_yaml::from_value(section)?;
    let mut voxelizer = CpuVoxelizer::new(&config)?;
    let mut grid = vec![0.0f32; voxelizer.grid().cells() * config.channels.len()];
    let output = DataId::from("voxels".to_owned());
    let (mut selector, mut message) = (Selector::new(Selection::default()), Message::default());
    let (mut node, mut events) = DoraNode::init_from_env()?;
    while let Some(event) = events.recv() {
        let Event::Input { mut metadata, data, .. } = event else {
            continue;
        };
        read_message(&metadata.parameters, data.as_array(), &mut selector, &mut message)?;
        let start = Instant::now();
        let mut refused = None;
        voxelizer.gather([(0, &message)], |_, error| refused = Some(error));
        refused.map_or(Ok(()), Err)?;
        voxelizer.write_dense(&mut grid[..]);
        let compute_us = start.elapsed().as_secs_f64() * 1e6;
        metadata
            .parameters
            .insert(ops::key::compute_us.name.into(), Parameter::Float(compute_us));
        let array = Float32Array::from(grid);
        node.send_output(output.clone(), metadata.parameters, array.clone())?;
        // The memory of the grid is reused, since page faults of new memory would cost more than the copy.
        let (_, values, _) = array.into_parts();
        grid = values
            .into_inner()
            .into_vec()
            .map_err(|_| "the array is still held by somebody")?;
    }
    Ok(())
}
