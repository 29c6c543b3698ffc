//! What is in a request is counted before anything is made of it: it is refused at the first that
//! is too much. Reading it would take minutes and gigabytes.

use std::{collections::BTreeMap, fmt};

use prost_reflect::{
    Kind, MessageDescriptor,
    prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{HEAVIEST, LONGEST, OBJECT, shortened};

/// # Errors
/// What is too much. What is no JSON is told by who reads it next.
pub fn of_json(octets: &[u8]) -> Result<(), Vec<String>> {
    let mut budget = Budget::default();
    let mut from = serde_json::Deserializer::from_slice(octets);
    _ = Counted { budget: &mut budget, name: "", place: &mut 0 }.deserialize(&mut from);
    budget.over.map_or(Ok(()), |over| Err(vec![over]))
}

/// As [`of_json`], of a message of type `of` as protobuf writes it.
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
    /// What is too much.
    over: Option<String>,
}

impl Budget {
    /// `None`: it is too much.
    fn value(&mut self, weight: usize) -> Option<()> {
        self.weight += weight;
        if self.weight > HEAVIEST {
            let what = "the request has too many values\n  try several requests (append_config)";
            self.over.get_or_insert_with(|| what.into());
        }
        self.over.is_none().then_some(())
    }

    /// An object or a list, the `place`th of what is called so. `None`: it is too much.
    fn object(&mut self, name: &str, place: usize) -> Option<()> {
        if place > LONGEST {
            let what =
                format!("{}: more than {LONGEST} in one list are not supported", shortened(name));
            self.over.get_or_insert(what);
        }
        self.value(OBJECT)
    }

    /// `None`: it is too much, or no such message.
    fn fields(&mut self, of: &MessageDescriptor, mut octets: &[u8], depth: usize) -> Option<()> {
        // Deeper is an error to prost, too.
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
                // Numbers of a list may come as one field, an octet or more each.
                Some((Kind::String | Kind::Bytes, _)) | None => self.value(1)?,
                Some(_) => self.value(inner.len().max(1))?,
            }
        }
        Some(())
    }
}

/// A value of JSON that is counted and not kept.
struct Counted<'a> {
    budget: &'a mut Budget,
    /// Of the field that it stands in.
    name: &'a str,
    /// How many objects came before it in its list.
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

/// The name of a member, as it stands in the request: one with escapes is no field's.
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
