//! Decoder for the patterns of a field. All fields of the schema use the same patterns.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;
use squall_profile::Op;
use squall_units::{MacAddr, gcd};

use crate::{
    headers::{Field, Form},
    read::{Node, Notes, brief},
};

/// A pattern and its tags.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setting {
    pub what: What,
    pub tags: Vec<TagDef>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum What {
    /// Unset: the default, or a computed value.
    #[default]
    Nothing,
    Auto,
    Value(u128),
    Varying(Law),
    /// Deliberately wrong.
    BadChecksum,
}

/// Values as a function of the frame index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Law {
    /// A list of at least two values.
    List(Vec<u128>),
    /// `count` values (at least 2); wraps within the field's `bits`.
    Step { start: u128, step: u128, count: u64, down: bool },
    /// `count` random values, repeated.
    Random { min: u128, max: u128, seed: u64, count: u64 },
}

/// Bits of a field that distinguish frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TagDef {
    pub name: String,
    /// Offset from the field's most significant bit.
    pub offset: usize,
    pub length: usize,
}

/// Maximum length of the lists made for steps that wrap and for tagged values.
pub(crate) const LONGEST_LIST: u64 = 65_536;

impl Setting {
    /// Reads the pattern of `field` from `node`.
    pub fn read(node: &Node<'_>, field: &Field, notes: &mut Notes) -> Self {
        if !node.is_present() {
            return Self::default();
        }
        if field.form == Form::Checksum {
            return Self { what: checksum(node, notes), tags: Vec::new() };
        }
        let mut choices = vec!["value", "values", "increment", "decrement"];
        if field.auto {
            choices.push("auto");
        }
        if field.random {
            choices.push("random");
        }
        node.known(&[choices.as_slice(), &["choice", "metric_tags"]].concat(), notes);
        let default = if field.auto && !matches!(field.form, Form::Ipv4 | Form::Ipv6) {
            "auto"
        } else {
            "value"
        };
        let Some(choice) = node.choice(&choices, Some(default), notes) else {
            return Self::default();
        };
        let inner = node.at(choice);
        let what = match choice {
            "auto" => automatic(&inner, field, notes),
            "value" => {
                if inner.is_present() {
                    number(&inner, field, notes).map(What::Value)
                } else {
                    Some(What::Nothing)
                }
            }
            "values" => values(node, field, notes),
            "random" => random(&inner, field, notes),
            _ => steps(&inner, field, choice == "decrement", notes),
        };
        Self { what: what.unwrap_or_default(), tags: tags(node, field, notes) }
    }

    /// The value of the first frame; `None`: computed.
    pub fn first(&self) -> Option<u128> {
        match &self.what {
            What::Value(value) => Some(*value),
            What::Varying(Law::List(values)) => values.first().copied(),
            What::Varying(Law::Step { start, .. }) => Some(*start),
            What::Varying(Law::Random { min, .. }) => Some(*min),
            What::Nothing | What::Auto | What::BadChecksum => None,
        }
    }
}

fn checksum(node: &Node<'_>, notes: &mut Notes) -> What {
    node.known(&["choice", "generated", "custom"], notes);
    match node.choice(&["generated", "custom"], Some("generated"), notes) {
        Some("custom") => match node.uint("custom", 0xffff, notes) {
            Some(value) => What::Value(value.into()),
            None => What::Value(0),
        },
        Some(_) if node.word("generated", &["good", "bad"], Some("good"), notes) == Some("bad") => {
            What::BadChecksum
        }
        _ => What::Nothing,
    }
}

fn automatic(node: &Node<'_>, field: &Field, notes: &mut Notes) -> Option<What> {
    if matches!(field.form, Form::Ipv4 | Form::Ipv6) {
        notes.unsupported(node, "addresses from DHCP; try the address as value");
        return None;
    }
    // Ignore the value next to `auto`, which is the client's estimate.
    Some(What::Auto)
}

fn values(node: &Node<'_>, field: &Field, notes: &mut Notes) -> Option<What> {
    let list = node.list("values", notes);
    let values: Vec<u128> =
        list.iter().map(|item| number(item, field, notes)).collect::<Option<_>>()?;
    Some(match values.as_slice() {
        [] => What::Nothing,
        [one] => What::Value(*one),
        [first, rest @ ..] if rest.iter().all(|value| value == first) => What::Value(*first),
        _ => What::Varying(Law::List(values)),
    })
}

fn steps(node: &Node<'_>, field: &Field, down: bool, notes: &mut Notes) -> Option<What> {
    node.known(&["start", "step", "count"], notes);
    let start = member(node, "start", field.counter_default(), field, notes)?;
    let step = member(node, "step", 1, field, notes)?;
    let count = node.uint("count", u64::MAX, notes).unwrap_or(1);
    if count <= 1 || step == 0 {
        return Some(What::Value(start));
    }
    let most = field.most();
    // Values that fit into the field without wrapping.
    let reach = step.checked_mul(u128::from(count - 1));
    let inside = match down {
        false => reach.and_then(|reach| start.checked_add(reach)).is_some_and(|last| last <= most),
        true => reach.is_some_and(|reach| reach <= start),
    };
    if inside && step <= i128::MAX as u128 {
        return Some(What::Varying(Law::Step { start, step, count, down }));
    }
    if count > LONGEST_LIST {
        notes.unsupported(
            node,
            &format!("{count} values beyond the end of the field; at most {LONGEST_LIST}"),
        );
        return None;
    }
    let add = if down { wrap(0u128.wrapping_sub(step), most) } else { step };
    let values = (0..count).scan(start, |value, _| {
        let now = *value;
        *value = wrap(value.wrapping_add(add), most);
        Some(now)
    });
    Some(What::Varying(Law::List(values.collect())))
}

fn wrap(value: u128, most: u128) -> u128 {
    value & most
}

fn random(node: &Node<'_>, field: &Field, notes: &mut Notes) -> Option<What> {
    node.known(&["min", "max", "seed", "count"], notes);
    let min = member(node, "min", 0, field, notes)?;
    let max = member(node, "max", field.most(), field, notes)?;
    let seed = node.uint("seed", u64::MAX, notes).unwrap_or(1);
    let count = node.uint("count", u64::MAX, notes).unwrap_or(1).max(1);
    if min > max {
        notes.problem(&node.path, "min is more than max");
        return None;
    }
    Some(if min == max {
        What::Value(min)
    } else {
        What::Varying(Law::Random { min, max, seed, count })
    })
}

fn tags(node: &Node<'_>, field: &Field, notes: &mut Notes) -> Vec<TagDef> {
    let mut tags = Vec::new();
    for tag in node.list("metric_tags", notes) {
        tag.known(&["name", "offset", "length"], notes);
        let Some(name) = tag.needed_text("name", notes) else { continue };
        let bits = field.bits as u64;
        let offset = tag.uint("offset", bits - 1, notes).unwrap_or(0);
        let length = tag.uint("length", bits, notes).unwrap_or(bits - offset);
        if length == 0 || offset + length > bits {
            notes.problem(
                &tag.path,
                format!("offset and length exceed the {bits} bits of the field"),
            );
            continue;
        }
        tags.push(TagDef {
            name: name.to_owned(),
            offset: offset as usize,
            length: length as usize,
        });
    }
    tags
}

fn member(
    node: &Node<'_>,
    key: &str,
    default: u128,
    field: &Field,
    notes: &mut Notes,
) -> Option<u128> {
    match node.get(key) {
        Some(node) => number(&node, field, notes),
        None => Some(default),
    }
}

/// Reads a value in the field's own form.
pub(crate) fn number(node: &Node<'_>, field: &Field, notes: &mut Notes) -> Option<u128> {
    let text = match node.value {
        Value::String(text) => text.as_str(),
        _ => "",
    };
    let (value, expected) = match field.form {
        Form::Number | Form::Checksum => {
            return node
                .own_uint(u64::try_from(field.most()).unwrap_or(u64::MAX), notes)
                .map(u128::from);
        }
        Form::Mac => (mac(text), "a MAC address as 00:00:5e:00:53:01"),
        Form::Ipv4 => (text.parse().ok().map(|a: Ipv4Addr| a.to_bits().into()), "an IPv4 address"),
        Form::Ipv6 => (text.parse().ok().map(|a: Ipv6Addr| a.to_bits()), "an IPv6 address"),
    };
    if value.is_none() {
        notes.problem(&node.path, format!("found {}, expected {expected}", brief(node.value)));
    }
    value
}

pub(crate) fn mac(text: &str) -> Option<u128> {
    let MacAddr(octets) = text.parse().ok()?;
    Some(octets.iter().fold(0, |value, octet| value << 8 | u128::from(*octet)))
}

impl Field {
    pub fn most(&self) -> u128 {
        if self.bits >= 128 { u128::MAX } else { (1 << self.bits) - 1 }
    }

    /// The default start of a counter, which in the schema is the field's default value.
    fn counter_default(&self) -> u128 {
        self.default
    }
}

impl Law {
    /// Number of frames after which the values repeat.
    pub fn period(&self) -> u64 {
        match self {
            Self::List(values) => values.len() as u64,
            Self::Step { count, .. } | Self::Random { count, .. } => *count,
        }
    }

    /// The value of frame `index`; `None` if random.
    pub fn at(&self, index: u64) -> Option<u128> {
        match self {
            Self::List(values) => Some(values[(index % values.len() as u64) as usize]),
            Self::Step { start, step, count, down } => {
                let far = step * u128::from(index % count);
                Some(if *down { start - far } else { start + far })
            }
            Self::Random { .. } => None,
        }
    }

    /// Values of frames `first`, `first + every`, `first + 2 * every` ...; `None`: more distinct
    /// values than a list may have.
    pub fn each(&self, first: u64, every: u64) -> Option<What> {
        if every == 1 {
            return Some(What::Varying(self.clone()));
        }
        let period = self.period();
        if let Self::Random { min, max, seed, count } = self {
            // Each part draws its own values; together the parts draw `count` values.
            let count = count.div_ceil(every);
            return Some(What::Varying(Self::Random {
                min: *min,
                max: *max,
                seed: seed ^ first.rotate_left(32),
                count,
            }));
        }
        let left = period / gcd(period.into(), every.into()) as u64;
        if left == 1 {
            return self.at(first).map(What::Value);
        }
        if let Self::Step { step, down, .. } = self
            && period.is_multiple_of(every)
        {
            let start = self.at(first)?;
            return Some(What::Varying(Self::Step {
                start,
                step: step * u128::from(every),
                count: left,
                down: *down,
            }));
        }
        if left > LONGEST_LIST {
            return None;
        }
        let values = (0..left).map(|i| self.at((first % period + i * (every % period)) % period));
        values.collect::<Option<_>>().map(|values| What::Varying(Self::List(values)))
    }

    /// The equivalent operation in a profile.
    pub fn op(&self) -> Op {
        match self {
            Self::List(values) => Op::List { values: values.clone(), init: 0 },
            Self::Step { start, step, count, down } => {
                let reach = step * u128::from(count - 1);
                let (min, max) =
                    if *down { (start - reach, *start) } else { (*start, start + reach) };
                let step = i128::try_from(*step).unwrap_or(i128::MAX);
                Op::Step { min, max, init: *start, step: if *down { -step } else { step } }
            }
            Self::Random { min, max, seed, count } => {
                Op::Random { min: *min, max: *max, limit: Some(*count), seed: Some(*seed) }
            }
        }
    }
}
