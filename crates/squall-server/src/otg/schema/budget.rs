//! Counts the values of a request before it is deserialized, and stops at the limit. Without this,
//! reading one small request with millions of empty objects would take minutes and gigabytes.

use std::{collections::BTreeMap, fmt};

use prost_reflect::{
    Kind, MessageDescriptor,
    prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{MAX_LIST, MAX_VALUES, OBJECT_WEIGHT, shortened};

/// Checks JSON. Malformed JSON passes, because the parser that runs next reports it with its
/// position.
///
/// # Errors
///
/// The limit that the request exceeds.
pub fn of_json(octets: &[u8]) -> Result<(), Vec<String>> {
    let mut budget = Budget::default();
    let mut from = serde_json::Deserializer::from_slice(octets);
    _ = Counted { budget: &mut budget, name: "", place: &mut 0 }.deserialize(&mut from);
    budget.over.map_or(Ok(()), |over| Err(vec![over]))
}

/// As [`of_json`], for a message of type `of` in protobuf's wire format.
///
/// # Errors
/// As [`of_json`].
pub fn of_protobuf(of: &MessageDescriptor, octets: &[u8]) -> Result<(), Vec<String>> {
    let mut budget = Budget::default();
    _ = budget.fields(of, octets, 0);
    budget.over.map_or(Ok(()), |over| Err(vec![over]))
}

#[derive(Default)]
struct Budget {
    weight: usize,
    /// The limit that the request exceeds.
    over: Option<String>,
}

impl Budget {
    /// Returns `None` if there are too many values.
    fn value(&mut self, weight: usize) -> Option<()> {
        self.weight += weight;
        if self.weight > MAX_VALUES {
            let what = "the request has too many values\n  try several requests (append_config)";
            self.over.get_or_insert_with(|| what.into());
        }
        self.over.is_none().then_some(())
    }

    /// Counts an object or a list: the element with index `place` of the field `name`. `None`: too
    /// many.
    fn object(&mut self, name: &str, place: usize) -> Option<()> {
        if place > MAX_LIST {
            let what =
                format!("{}: more than {MAX_LIST} in one list are not supported", shortened(name));
            self.over.get_or_insert(what);
        }
        self.value(OBJECT_WEIGHT)
    }

    /// Returns `None` if there are too many values, or if the message is invalid.
    fn fields(&mut self, of: &MessageDescriptor, mut octets: &[u8], depth: usize) -> Option<()> {
        // The same depth limit as in prost.
        if depth > 100 {
            return None;
        }
        let mut places: BTreeMap<u32, usize> = BTreeMap::new();
        while !octets.is_empty() {
            let (number, kind) = decode_key(&mut octets).ok()?;
            if kind != WireType::LengthDelimited {
                skip_field(kind, number, &mut octets, DecodeContext::default()).ok()?;
                self.value(1)?;
                continue;
            }
            let length = usize::try_from(decode_varint(&mut octets).ok()?).ok()?;
            let (inner, rest) = octets.split_at_checked(length)?;
            octets = rest;
            match of.get_field(number).map(|field| (field.kind(), field)) {
                Some((Kind::Message(of), field)) => {
                    let place = places.entry(number).or_default();
                    *place += 1;
                    self.object(field.name(), *place)?;
                    self.fields(&of, inner, depth + 1)?;
                }
                // A packed repeated field holds all its numbers in one field, with at least an
                // octet each, so its length in octets bounds their count.
                Some((Kind::String | Kind::Bytes, _)) | None => self.value(1)?,
                Some(_) => self.value(inner.len().max(1))?,
            }
        }
        Some(())
    }
}

/// Counts a JSON value without keeping it.
struct Counted<'a> {
    budget: &'a mut Budget,
    /// Name of the field that holds the value.
    name: &'a str,
    /// Number of objects before it in its list.
    place: &'a mut usize,
}

impl Counted<'_> {
    fn object<E: Error>(&mut self) -> Result<(), E> {
        *self.place += 1;
        ended(self.budget.object(self.name, *self.place))
    }

    fn value<E: Error>(self) -> Result<(), E> {
        ended(self.budget.value(1))
    }
}

fn ended<E: Error>(counted: Option<()>) -> Result<(), E> {
    counted.ok_or_else(|| E::custom("too much"))
}

impl<'de> DeserializeSeed<'de> for Counted<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Counted<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        self.object()?;
        while let Some(name) = members.next_key_seed(Name)? {
            members.next_value_seed(Counted { budget: self.budget, name, place: &mut 0 })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.object()?;
        let mut place = 0;
        loop {
            let item = Counted { budget: self.budget, name: self.name, place: &mut place };
            if items.next_element_seed(item)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.value()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.value()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.value()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.value()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.value()
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.value()
    }
}

/// The name of a member, as written. A name with escapes matches no field, so it need not be
/// decoded.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = &'de str;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<&'de str, D::Error> {
        from.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = &'de str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<&'de str, E> {
        Ok(name)
    }

    fn visit_str<E>(self, _: &str) -> Result<&'de str, E> {
        Ok("")
    }
}
