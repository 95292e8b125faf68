//! Requests for observations: what they ask for, and their metadata until they are answered.

use crate::app::Fault;
use robocache_stream::{Header, key};
use std::collections::VecDeque;
use std::time::Instant;

/// The requests that wait, in the order in which they came, in memory that is reused.
#[derive(Default)]
pub(super) struct Asked {
    waiting: VecDeque<(u64, Instant, Header)>,
    free: Vec<Header>,
}

impl Asked {
    /// Keeps the metadata of a request.
    pub fn put(&mut self, number: u64, header: &Header) {
        let mut kept = self.free.pop().unwrap_or_default();
        kept.copy_from(header);
        self.waiting.push_back((number, Instant::now(), kept));
    }

    /// Takes the metadata of a request out.
    pub fn take(&mut self, number: u64) -> Option<Header> {
        let at = self.waiting.iter().position(|(of, ..)| *of == number)?;
        self.waiting.remove(at).map(|(.., header)| header)
    }

    /// Takes that of the oldest request out.
    pub fn take_oldest(&mut self) -> Option<Header> {
        self.waiting.pop_front().map(|(.., header)| header)
    }

    /// Gives the memory of metadata back.
    pub fn give_back(&mut self, header: Option<Header>) {
        self.free.extend(header);
    }

    /// When the oldest one came.
    pub fn oldest(&self) -> Option<Instant> {
        self.waiting.front().map(|&(_, came, _)| came)
    }
}

/// The time that a request asks for, ns; `None`: the newest that is due. dora's own stamp is no such time.
///
/// # Errors
/// A time that is none.
pub(super) fn time(header: &Header) -> Result<Option<i64>, Fault> {
    if let Some(came) = header.other.get(key::timestamp_ns) {
        let (key, came) = (key::timestamp_ns, came.as_ref());
        return Err(format!("metadata `{key}` is {came:?} (allowed: an Integer, or none for the newest)").into());
    }
    let is_own = *header.unstamped == 0;
    Ok(header.timestamp_ns.get().copied().filter(|_| is_own))
}

/// Begins the header of an answer with all that the request says, but for the form of its payload.
pub(super) fn answer(header: &mut Header, request: &Header) {
    header.copy_from(request);
    header.forget_form();
    if header.unstamped.is_present() {
        header.timestamp_ns.clear();
        header.unstamped.clear();
    }
}
