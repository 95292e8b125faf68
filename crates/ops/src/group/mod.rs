//! Operation `group`: groups messages of several streams into sets, one message of each stream, as the synchronizers of ROS's
//! message_filters do.
//!
//! [`GroupingConfig`] selects the [`GroupingPolicy`]. [`Grouper`] receives messages in order of arrival, and reports each as a
//! member of a set or as dropped. It uses only their times: the items that it stores may be the messages, or indices of
//! messages that are stored elsewhere.
//!
//! `docs/semantics.md` defines the sets of each policy. They depend only on stamps and on the order of arrival.
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
