//! Test clouds as lists of numbers, and helpers that voxelize them and return all of the output.

use super::backend::placement;
use half::{bf16, f16};
use robocache::device::Dtype;
use robocache::ops::voxelize::{GatheredGrid, VoxelCounters, VoxelInput, VoxelLayout, VoxelizeConfig, Voxelizer};
use robocache::stream::{Cells, Message, Payload};

/// Column of a cloud. The values are rounded to the type `dtype` when they are used.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub dtype: Dtype,
    pub values: Vec<f64>,
}

#[derive(Clone, Debug)]
pub struct TestCloud {
    pub columns: Vec<Column>,
}

/// Encodes a value in a type. Returns its bytes, and the value that the bytes stand for.
pub fn encode(dtype: Dtype, value: f64) -> (Vec<u8>, f64) {
    macro_rules! as_type {
        ($($dtype:ident $T:ty),*) => {
            match dtype {
                $(Dtype::$dtype => ((value as $T).to_le_bytes().to_vec(), (value as $T) as f64),)*
                Dtype::Float16 => (f16::from_f64(value).to_le_bytes().to_vec(), f16::from_f64(value).to_f64()),
                Dtype::BFloat16 => (bf16::from_f64(value).to_le_bytes().to_vec(), bf16::from_f64(value).to_f64()),
            }
        };
    }
    as_type!(Float32 f32, Float64 f64, Int8 i8, Int16 i16, Int32 i32, Int64 i64, UInt8 u8, UInt16 u16, UInt32 u32, UInt64 u64)
}

impl TestCloud {
    /// Makes a cloud with a float32 column for each of `names`, such as x, y and z, from one array of values per point.
    pub fn new<const C: usize>(names: [&str; C], points: &[[f64; C]]) -> Self {
        let column = |(i, name): (usize, &str)| Column {
            name: name.to_owned(),
            dtype: Dtype::Float32,
            values: points.iter().map(|point| point[i]).collect(),
        };
        Self {
            columns: names.into_iter().enumerate().map(column).collect(),
        }
    }

    pub fn xyz(points: &[[f64; 3]]) -> Self {
        Self::new(["x", "y", "z"], points)
    }

    /// Changes the type of a column. Its values stay, and are rounded when they are used.
    pub fn with_type(mut self, name: &str, dtype: Dtype) -> Self {
        self.columns.iter_mut().find(|c| c.name == name).unwrap().dtype = dtype;
        self
    }

    /// Keeps only the first `columns` columns.
    #[allow(dead_code)]
    pub fn first_columns(mut self, columns: usize) -> Self {
        self.columns.truncate(columns);
        self
    }

    pub fn len(&self) -> usize {
        self.columns[0].values.len()
    }

    /// Returns a cloud of the points at `indices`, in that order.
    pub fn select(&self, indices: &[usize]) -> Self {
        let mut selected = self.clone();
        for column in &mut selected.columns {
            column.values = indices.iter().map(|&i| column.values[i]).collect();
        }
        selected
    }

    /// Returns the values of a column, rounded to its type.
    pub fn column(&self, name: &str) -> Vec<f64> {
        let column = self.columns.iter().find(|c| c.name == name).unwrap();
        column.values.iter().map(|v| encode(column.dtype, *v).1).collect()
    }

    pub fn dtype(&self, name: &str) -> Dtype {
        self.columns.iter().find(|c| c.name == name).unwrap().dtype
    }

    /// Makes a message with one column per field.
    pub fn to_struct(&self) -> Message {
        let mut message = Message::default();
        message.rows = self.len();
        for column in &self.columns {
            let bytes: Vec<u8> = column.values.iter().flat_map(|v| encode(column.dtype, *v).0).collect();
            message
                .add_column(&column.name, column.dtype, Cells::One)
                .data
                .copy_from(&bytes);
        }
        message
    }

    /// Makes a message with a tensor `[N, C]` of the type of the first column.
    pub fn to_tensor(&self) -> Message {
        let dtype = self.columns[0].dtype;
        let names: Vec<_> = self.columns.iter().map(|c| c.name.as_str()).collect();
        let mut message = Message::default();
        message.rows = self.len() * names.len();
        message.header.shape.set([self.len() as i64, names.len() as i64]);
        message.header.fields.set(&names);
        let rows = (0..self.len()).flat_map(|i| self.columns.iter().map(move |column| column.values[i]));
        let bytes: Vec<u8> = rows.flat_map(|v| encode(dtype, v).0).collect();
        message.add_column("", dtype, Cells::One).data.copy_from(&bytes);
        message
    }
}

/// All outputs of the voxelizer for one grid, as bits that can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub counters: VoxelCounters,
    pub unusable: Vec<u64>,
    pub coords: Vec<[i32; 3]>,
    /// Bits of the float32 features of each occupied cell.
    pub features: Vec<Vec<u32>>,
}

impl Output {
    pub fn values(&self) -> Vec<Vec<f32>> {
        self.features
            .iter()
            .map(|row| row.iter().map(|v| f32::from_bits(*v)).collect())
            .collect()
    }
}

/// Makes a voxelizer with the placement that the module `backend` returns.
pub fn voxelizer(config: &VoxelizeConfig) -> Voxelizer {
    Voxelizer::new(config, &placement()).unwrap()
}

/// Makes one grid of `clouds` in `out`, whose memory is filled with 0xaa first. Panics if a cloud is refused.
pub fn gather<'a>(
    voxelizer: &'a mut Voxelizer,
    clouds: &'a [(usize, &'a Message)],
    out: &mut Message,
) -> GatheredGrid<'a> {
    let is_coo = voxelizer.layout().columns.len() == 2;
    let mut grid = voxelizer.gather(clouds);
    assert_eq!(grid.refused(), []);
    let mut payload = Payload::in_message(out, grid.layout());
    for column in 0..if is_coo { 2 } else { 1 } {
        payload.column::<u8>(column).fill(0xaa);
    }
    grid.write(&mut payload);
    grid
}

pub fn coo(voxelizer: &mut Voxelizer, clouds: &[(usize, &Message)]) -> Output {
    let mut out = Message::default();
    let grid = gather(voxelizer, clouds, &mut out);
    let [coords, features] = out.columns() else {
        panic!("no rows")
    };
    let columns = grid.channels().len();
    Output {
        counters: grid.counters(),
        unusable: grid.unusable().to_vec(),
        coords: coords
            .data
            .as_slice::<i32>()
            .chunks_exact(3)
            .map(|c| [c[0], c[1], c[2]])
            .collect(),
        features: features
            .data
            .as_slice::<u32>()
            .chunks_exact(columns)
            .map(<[u32]>::to_vec)
            .collect(),
    }
}

/// Makes one dense float32 grid of `clouds`. Returns the counters and the values.
pub fn dense(config: &VoxelizeConfig, clouds: &[(usize, &Message)]) -> (VoxelCounters, Vec<f32>) {
    let config = VoxelizeConfig {
        layout: VoxelLayout::Dense,
        max_voxels: None,
        ..config.clone()
    };
    let (mut voxelizer, mut out) = (voxelizer(&config), Message::default());
    let counters = gather(&mut voxelizer, clouds, &mut out).counters();
    (counters, out.columns()[0].data.as_slice().to_vec())
}

/// Makes one grid of `clouds` in the layout `bits`. Returns the counters and the bytes.
pub fn bits(config: &VoxelizeConfig, clouds: &[(usize, &Message)]) -> (VoxelCounters, Vec<u8>) {
    let config = VoxelizeConfig {
        layout: VoxelLayout::Bits,
        channels: vec!["occupancy".parse().unwrap()],
        max_voxels: None,
        ..config.clone()
    };
    let (mut voxelizer, mut out) = (voxelizer(&config), Message::default());
    let counters = gather(&mut voxelizer, clouds, &mut out).counters();
    (counters, out.columns()[0].data.bytes().to_vec())
}

/// Makes a `coo` configuration with one input and no extrinsic.
pub fn config(origin: f32, size: f32, shape: [usize; 3], channels: &[&str]) -> VoxelizeConfig {
    VoxelizeConfig {
        origin_m: [origin; 3],
        voxel_size_m: [size; 3],
        shape,
        channels: channels.iter().map(|c| c.parse().unwrap()).collect(),
        inputs: vec![VoxelInput {
            input: "lidar".into(),
            ..VoxelInput::default()
        }],
        ..VoxelizeConfig::default()
    }
}

pub fn run(config: &VoxelizeConfig, cloud: &TestCloud) -> Output {
    coo(&mut voxelizer(config), &[(0, &cloud.to_struct())])
}
