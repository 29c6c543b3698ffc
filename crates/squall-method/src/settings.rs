//! Settings of the methods. A single definition, with default and limits, generates the
//! command-line argument, the field of a request, and the entry of the schema.

use std::{fmt::Display, ops::RangeInclusive};

use crate::{bench::MethodError, rig::Rig};

/// Upper limit of all durations, seconds.
pub const WEEK: f64 = 7.0 * 86_400.0;

/// Defines the `Settings` of a method, under a heading of the command-line help. A setting has a
/// default and is one value, a comma-separated list (`each`), an optional value (`given`), or a
/// `flag`. Then follow the value's name in the help, further attributes of the argument, its change
/// by `quick`, and the limits that `limits` checks. A method with `own quick` implements `quick`
/// itself.
macro_rules! settings {
    ($(#[$meta:meta])* own quick, $heading:literal: $(
        $(#[$doc:meta])+
        $field:ident: $of:ty = $default:expr =>
            $(one($one:literal $($one_more:tt)*))?
            $(each($each:literal $($each_more:tt)*))?
            $(given($given:literal))?
            $(flag($($flag:tt)*))?
            $(, quick $quick:expr)?
            $(, in $limit:expr)?;
    )+) => {
        $(#[$meta])*
        #[derive(
            Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        #[serde(deny_unknown_fields, default)]
        #[cfg_attr(feature = "clap", derive(clap::Args), command(next_help_heading = $heading))]
        pub struct Settings {
            $(
                $(#[$doc])+
                $(#[cfg_attr(feature = "clap", arg(long, value_name = $one,
                    default_value_t = Settings::default().$field $($one_more)*))])?
                $(#[cfg_attr(feature = "clap", arg(long, value_name = $each, value_delimiter = ',',
                    default_values_t = Settings::default().$field $($each_more)*))])?
                $(#[cfg_attr(feature = "clap", arg(long, value_name = $given))])?
                $(#[cfg_attr(feature = "clap", arg(long $($flag)*))])?
                pub $field: $of,
            )+
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl Settings {
            /// Applies `quick` to each setting whose name is not among `given`.
            #[allow(dead_code, unused_variables)]
            fn shortened(self, given: &[&str]) -> Self {
                Self {
                    $($($field: match given.contains(&stringify!($field)) {
                        true => self.$field,
                        false => $quick(self.$field),
                    },)?)+
                    ..self
                }
            }

            #[allow(dead_code)]
            fn limits(&self) -> Result<(), $crate::bench::MethodError> {
                $($($limit(stringify!($field), &self.$field)?;)?)+
                Ok(())
            }
        }
    };
    ($(#[$meta:meta])* $heading:literal: $($settings:tt)+) => {
        $crate::settings::settings! { $(#[$meta])* own quick, $heading: $($settings)+ }

        impl Settings {
            /// Shortens the test from minutes to seconds. Settings in `given` were set by the
            /// tester and keep their values.
            pub fn quick(self, given: &[&str]) -> Self {
                self.shortened(given)
            }
        }
    };
}
pub(crate) use settings;

/// Parses an Ethernet frame size, octets with FCS.
#[cfg(feature = "clap")]
pub fn frame_size() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(64..=65_535)
}

/// Parses a time: `10` and `0.5` are seconds, and `10s`, `500ms` or `1m30s` have units.
///
/// # Errors
/// The text is neither.
#[cfg(feature = "clap")]
pub fn seconds(text: &str) -> Result<f64, String> {
    match (text.parse::<f64>(), text.parse::<squall_units::Nanos>()) {
        (Ok(seconds), _) => Ok(seconds),
        (_, Ok(time)) => Ok(time.as_secs_f64()),
        _ => Err("expected a time, such as 10, 10s or 500ms".into()),
    }
}

pub fn at_most<T: PartialOrd>(most: T) -> impl FnOnce(T) -> T {
    move |value| if value > most { most } else { value }
}

pub fn at_least<T: PartialOrd>(least: T) -> impl FnOnce(T) -> T {
    move |value| if value < least { least } else { value }
}

/// Keeps the first `n` values.
pub fn first<T>(n: usize) -> impl FnOnce(Vec<T>) -> Vec<T> {
    move |values| values.into_iter().take(n).collect()
}

/// A setting with numeric limits.
pub trait Number: Copy + Display {
    fn number(self) -> f64;
}

impl Number for f64 {
    fn number(self) -> f64 {
        self
    }
}

impl Number for u32 {
    fn number(self) -> f64 {
        self.into()
    }
}

impl Number for u64 {
    fn number(self) -> f64 {
        self as f64
    }
}

/// Returns the error for an invalid setting.
fn wrong(text: String) -> Result<(), MethodError> {
    Err(MethodError::Usage(text))
}

/// Requires a value above 0, up to `most`.
pub fn above_0<T: Number>(most: f64) -> impl Fn(&str, &T) -> Result<(), MethodError> {
    move |name, value| match value.number() > 0.0 && value.number() <= most {
        true => Ok(()),
        false => wrong(format!("{name} = {value}, expected above 0, to {most}")),
    }
}

pub fn within<T: Number>(
    range: RangeInclusive<f64>,
) -> impl Fn(&str, &T) -> Result<(), MethodError> {
    move |name, value| match range.contains(&value.number()) {
        true => Ok(()),
        false => {
            let (least, most) = (range.start(), range.end());
            wrong(format!("{name} = {value}, expected {least} to {most}"))
        }
    }
}

pub fn from(least: u32) -> impl Fn(&str, &u32) -> Result<(), MethodError> {
    move |name, value| match *value >= least {
        true => Ok(()),
        false => wrong(format!("{name} = {value}, expected at least {least}")),
    }
}

/// Requires a non-empty list, such as `example`.
pub fn some<T>(example: &str) -> impl Fn(&str, &Vec<T>) -> Result<(), MethodError> {
    move |name, values| match values.is_empty() {
        true => wrong(format!("{name} is empty\n  try {example}")),
        false => Ok(()),
    }
}

/// Requires 2 to 250 ports. `takes` describes their use in the error message.
///
/// # Errors
/// If the rig has more or fewer ports.
pub fn ports(rig: &Rig, takes: &str) -> Result<(), MethodError> {
    match rig.ports.len() {
        2..=250 => Ok(()),
        n => {
            wrong(format!("{n} port(s): {takes}\n  try --port A=eth1 --port B=eth2 --port C=eth3"))
        }
    }
}
