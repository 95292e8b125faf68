//! The kinematic chains of a configuration file, to which operations refer by name.
//!
//! An operation's first use of a chain reads its URDF. Later uses share the parsed chain.

use robocache_ops::kinematics::{Chain, ChainSource};
use robocache_yaml::{did_you_mean, listed};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Kinematic chains of the section `chains:`, by name. A URDF is read when an operation first uses its chain: nodes that share
/// a file need only the URDFs that they use.
#[derive(Debug, Default)]
pub(super) struct Chains(BTreeMap<String, NamedChain>);

#[derive(Debug)]
struct NamedChain {
    source: ChainSource,
    read: OnceLock<Arc<Chain>>,
}

/// Reason why the kinematic chain that a section names can't be used.
#[derive(Debug)]
pub(super) enum ChainProblem {
    /// The section `chains:` has no chain of the requested name; the text lists the names that it has.
    Unknown(String),
    /// The URDF of the chain can't be read; the text says why.
    Unusable(String),
}

impl Chains {
    pub(super) fn new(sources: BTreeMap<String, ChainSource>) -> Self {
        let unread = |(name, source)| {
            let read = OnceLock::new();
            (name, NamedChain { source, read })
        };
        Self(sources.into_iter().map(unread).collect())
    }

    /// Returns the kinematic chain `name`; the first call reads its URDF. A relative path of the URDF starts at `folder`.
    pub(super) fn get(&self, name: &str, folder: &Path) -> Result<Arc<Chain>, ChainProblem> {
        let Some(found) = self.0.get(name) else {
            let names: Vec<&String> = self.0.keys().collect();
            let (hint, allowed) = (did_you_mean(name, &names), listed(&names));
            let problem = format!("`{name}` is not one of `chains:`{hint} (there: {allowed})");
            return Err(ChainProblem::Unknown(problem));
        };
        if let Some(chain) = found.read.get() {
            return Ok(chain.clone());
        }
        let chain = found.source.read(folder).map_err(ChainProblem::Unusable)?;
        Ok(found.read.get_or_init(|| Arc::new(chain)).clone())
    }

    /// Returns the warnings about all kinematic chains that have been read so far, each with the chain's name.
    pub(super) fn read_warnings(&self) -> Vec<String> {
        let read = self
            .0
            .iter()
            .filter_map(|(name, found)| Some((name, found.read.get()?)));
        read.flat_map(|(name, chain)| {
            let warnings = chain.warnings().iter();
            warnings.map(move |warning| format!("chain `{name}`: {warning}"))
        })
        .collect()
    }

    /// Warnings about the kinematic chain called `name`; empty if the chain does not exist or can't be read.
    pub(super) fn warnings(&self, name: &str, folder: &Path) -> Vec<String> {
        let chain = self.0.get(name).and_then(|found| found.source.read(folder).ok());
        chain.map_or_else(Vec::new, |chain| chain.warnings().to_vec())
    }
}
