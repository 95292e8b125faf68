//! Operation `group`: puts messages of several streams in sets, one message of each, as the synchronizers of ROS's
//! message_filters do.
//!
//! [`GroupingConfig`] chooses the [`GroupingPolicy`]. [`Grouper`] takes messages as they come, and tells which of them are a
//! set and which are in none. It only uses their times: the items that it holds may be messages, or numbers of messages that
//! are held elsewhere.
//!
//! `docs/semantics.md` defines the sets of each policy. They follow from stamps and the order of
//! arrival alone.
//!
//! ```
//! use robocache_ops::group::{Grouper, GroupingConfig, GroupingInput, Outcome};
//!
//! let input = |name: &str| GroupingInput { input: name.into(), ..GroupingInput::default() };
//! let config = GroupingConfig { inputs: vec![input("camera"), input("lidar")], ..GroupingConfig::default() };
//! let mut grouper = Grouper::new(&config)?;
//!
//! let mut sets = Vec::new();
//! // The frames of a camera at 10 Hz and the sweeps of a lidar, by their stamps in ms.
//! for (stream, ms) in [(0, 0), (1, 8), (0, 100), (1, 108), (0, 200), (1, 208)] {
//!     grouper.push(stream, ms * 1_000_000, 0, || ms)?;
//!     while let Some(outcome) = grouper.next_outcome() {
//!         if let Outcome::Member { item, set, .. } = outcome {
//!             sets.push((set.number, item));
//!         }
//!     }
//! }
//! assert_eq!(sets, [(0, 0), (0, 8), (1, 100), (1, 108)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod approximate;
mod config;
mod epsilon;
mod exact;
mod grouper;
pub mod key;
mod ledger;
mod policy;
mod spec;

pub use config::{GroupingConfig, GroupingInput, GroupingPolicy};
pub use grouper::{Arrival, Grouper, StampError};
pub use ledger::{DropReason, Outcome, SetInfo};

use super::{ConfigError, duration_ns};
use ledger::{Entry, Ledger};
