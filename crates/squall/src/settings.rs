//! How to measure received flows.

use std::{fmt::Display, str::FromStr};

use squall_measure::{By, FlowRx, FlowSettings, Pace, flow::Flow};
use squall_options::ReceivedFlows;
use squall_units::Nanos;

use crate::Error;

/// The settings for measuring received flows; `None`: they are not measured.
///
/// # Errors [`Error::Usage`]: the settings are invalid, or need more memory than this machine has.
pub(crate) fn of(asked: Option<&ReceivedFlows>) -> Result<Option<FlowSettings>, Error> {
    let asked = match asked {
        None | Some(ReceivedFlows::Measured(false)) => return Ok(None),
        Some(ReceivedFlows::Measured(true)) => return Ok(Some(FlowSettings::default())),
        Some(ReceivedFlows::By(options)) => options,
    };
    let default = FlowSettings::default();
    let settings = FlowSettings {
        by: parsed("by", asked.by.as_ref())?.unwrap_or_default(),
        limit: asked.limit.map_or(default.limit, |n| usize::try_from(n).unwrap_or(usize::MAX)),
        pace: Pace {
            interval: asked.interval.map_or(default.pace.interval, |time| time.0),
            burst_gap: asked.burst_gap.map_or(default.pace.burst_gap, |time| time.0),
        },
        sequence: parsed("sequence", asked.sequence.as_ref())?.unwrap_or_default(),
        ..default
    };
    check(&settings)?;
    Ok(Some(settings))
}

fn parsed<T: FromStr<Err: Display>>(name: &str, text: Option<&String>) -> Result<Option<T>, Error> {
    let one = |text: &String| {
        text.parse().map_err(|why| Error::Usage(format!("received_flows: {name} = {why}")))
    };
    text.map(one).transpose()
}

fn check(settings: &FlowSettings) -> Result<(), Error> {
    if settings.pace.interval == Nanos::ZERO {
        return Err(Error::Usage(
            "interval of peak rates = 0 s: expected a time above 0\n  try interval = 100 ms".into(),
        ));
    }
    if settings.by == By::None {
        return Ok(());
    }
    // The size of a flow without histograms, plus its entry in the index.
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
