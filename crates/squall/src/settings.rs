//! Settings of a session that no profile has.

use squall_measure::{By, FlowRx, FlowSettings, flow::Flow};
use squall_units::Nanos;

use crate::Error;

/// Settings that measure something, and that this machine has the memory for.
///
/// # Errors
/// [`Error::Usage`] for others.
pub(crate) fn check(settings: &FlowSettings) -> Result<(), Error> {
    if settings.pace.interval == Nanos::ZERO {
        return Err(Error::Usage(
            "interval of peak rates = 0 s: expected a time above 0\n  try interval = 100 ms".into(),
        ));
    }
    if settings.by == By::None {
        return Ok(());
    }
    // Without histograms, and the place in the index.
    let each = size_of::<Flow<FlowRx>>() + 2 * size_of::<u64>();
    let memory = squall_capture::machine_memory().unwrap_or(u64::MAX);
    let most = (memory / each as u64).min(1 << 31);
    let asked = settings.limit as u64;
    match asked {
        0 => Err(Error::Usage(
            "limit of 0 flows: expected 1 or more\n  try 10000, or by = none".into(),
        )),
        _ if asked > most => Err(Error::Usage(format!(
            "{asked} flows of {each} octets each need more than the memory of this machine: \
             expected at most {most}\n  try 1000000: further flows are counted as one"
        ))),
        _ => Ok(()),
    }
}
