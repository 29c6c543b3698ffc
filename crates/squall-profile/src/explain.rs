//! Short descriptions, as printed by `squall plan`.

use std::fmt;

use crate::{Departures, FieldRef, IMIX, Late, Mode, Op, SizeLaw, Vary, emit::value_text};

impl fmt::Display for SizeLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Natural => f.write_str("as the packet"),
            Self::Fixed(len) => write!(f, "{len}"),
            Self::List(lens) if *lens == IMIX => f.write_str("imix"),
            Self::List(lens) => few(f, lens, "lengths", |len| len.to_string()),
            Self::Range { min, max, step: 1 } => write!(f, "{min}-{max}"),
            Self::Range { min, max, step } => write!(f, "{min}-{max}/{step}"),
            Self::Uniform { min, max } => write!(f, "uniform {min}-{max}"),
            Self::Normal { mean, sd, min, max } => {
                write!(f, "normal, mean {mean}, sd {sd}, {min}-{max}")
            }
            Self::Weights(weights) => {
                few(f, weights, "lengths", |(len, weight)| format!("{len}:{weight}"))
            }
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Continuous => f.write_str("continuous"),
            Self::Burst(packets) => write!(f, "burst of {packets}"),
            Self::Bursts { bursts, packets, gap } => {
                let s = if *bursts == 1 { "" } else { "s" };
                write!(f, "{bursts} burst{s} of {packets}, {gap} apart")
            }
        }
    }
}

impl fmt::Display for Departures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant => f.write_str("constant"),
            Self::Exponential => f.write_str("exponential"),
            Self::Uniform { spread } => write!(f, "uniform, mean +/- {spread} of the mean"),
            Self::Normal { sd } => write!(f, "normal, sd {sd} of the mean"),
            Self::Pareto { shape } => write!(f, "pareto, shape {shape}"),
            Self::Weibull { shape } => write!(f, "weibull, shape {shape}"),
            Self::Gamma { shape } => write!(f, "gamma, shape {shape}"),
            Self::OnOff { on, off } => write!(f, "on {on}, off {off}"),
            Self::File { path } => write!(f, "gaps from {path}"),
        }
    }
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl fmt::Display for FieldRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Offset { offset, octets, mask } => {
                write!(
                    f,
                    "octets {offset} to {}, mask {mask:#x}",
                    offset.saturating_add(*octets).saturating_sub(1)
                )
            }
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        operation(f, self, &|value| value.to_string())
    }
}

/// Prints the field and its operation, with addresses in their notation.
impl fmt::Display for Vary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.field)?;
        operation(f, &self.op, &|value| {
            value_text(&self.field, value).unwrap_or_else(|| value.to_string())
        })?;
        let Self { add, shift, little_endian, .. } = *self;
        if add != 0 {
            write!(f, ", {add:+}")?;
        }
        if shift != 0 {
            let side = if shift < 0 { "right" } else { "left" };
            write!(f, ", {} bits to the {side}", shift.unsigned_abs())?;
        }
        if little_endian { f.write_str(", little-endian") } else { Ok(()) }
    }
}

fn operation(f: &mut fmt::Formatter<'_>, op: &Op, text: &dyn Fn(u128) -> String) -> fmt::Result {
    match op {
        Op::Step { min, max, init, step } => {
            let (name, first) = if *step < 0 { ("decrement", max) } else { ("increment", min) };
            write!(f, "{name} {} to {}", text(*min), text(*max))?;
            if step.unsigned_abs() != 1 {
                write!(f, " by {}", step.unsigned_abs())?;
            }
            if init != first {
                write!(f, " from {}", text(*init))?;
            }
            Ok(())
        }
        Op::List { values, init } => {
            f.write_str("list ")?;
            few(f, values, "values", |value| text(*value))?;
            if *init > 0 {
                write!(f, " from number {}", init + 1)?;
            }
            Ok(())
        }
        Op::Random { min, max, limit, seed } => {
            write!(f, "random {} to {}", text(*min), text(*max))?;
            limit.iter().try_for_each(|limit| write!(f, ", {limit} draws"))?;
            seed.iter().try_for_each(|seed| write!(f, ", seed {seed}"))
        }
        Op::Weighted { values } => {
            f.write_str("weighted ")?;
            few(f, values, "values", |(value, weight)| format!("{}:{weight}", text(*value)))
        }
        Op::After { of, then } => {
            operation(f, then, text)?;
            write!(f, ", after number {}", of + 1)
        }
    }
}

/// Prints a short list completely, and of a long one the first items.
fn few<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    what: &str,
    text: impl Fn(&T) -> String,
) -> fmt::Result {
    const FEW: usize = 6;
    let shown: Vec<String> = items.iter().take(FEW).map(text).collect();
    f.write_str(&shown.join(", "))?;
    if items.len() > FEW { write!(f, ", ... ({} {what})", items.len()) } else { Ok(()) }
}
