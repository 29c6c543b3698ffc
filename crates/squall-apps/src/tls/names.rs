//! Names that clients request, one for each flow.

use rustls::pki_types::ServerName;

use crate::{Data, Mark, Message, Part};

/// A name with `${flow:DIGITS}` and `${data:COLUMN}`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Names(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    /// The flow's number with this many digits, the last ones of it.
    Flow(u8),
    Column(Data, usize),
}

impl Names {
    /// # Errors
    /// Another mark, or a record that makes no host name.
    pub fn of(message: &Message) -> Result<Self, String> {
        let pieces = message.parts.iter().map(|part| match part {
            Part::Octets(octets) => Ok(Piece::Text(String::from_utf8_lossy(octets).into_owned())),
            Part::Mark(Mark::Flow { width }) => Ok(Piece::Flow(*width)),
            Part::Mark(Mark::Data { column, data: Some(data) }) => match data.column(column) {
                Some(nth) => Ok(Piece::Column(data.clone(), nth)),
                None => Err(format!("there is no column {column:?}")),
            },
            _ => Err("a name can have only ${flow:DIGITS} and, with data, ${data:COLUMN}".into()),
        });
        let names = Self(pieces.collect::<Result<_, String>>()?);
        let records = names.0.iter().find_map(|piece| match piece {
            Piece::Column(data, _) => Some(data),
            _ => None,
        });
        let circular = |data: &Data| data.in_order(crate::DataOrder::Circular);
        let n = records.map_or(1, Data::records).min(u32::MAX.into());
        let in_turn = Self(names.0.iter().map(|piece| piece.with(circular)).collect());
        for flow in 0..n as u32 {
            let name = in_turn.text(0, flow);
            if ServerName::try_from(name.as_str()).is_err() {
                return Err(format!("{name:?} is not a host name; expected www.example.net"));
            }
        }
        Ok(names)
    }

    /// The name of a flow, if it is one.
    pub fn name(&self, (seed, flow): (u64, u32)) -> Option<ServerName<'static>> {
        ServerName::try_from(self.text(seed, flow)).ok()
    }

    fn text(&self, seed: u64, flow: u32) -> String {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(octets) => text += octets,
                Piece::Flow(width) => {
                    let digits = format!("{flow:0width$}", width = usize::from(*width));
                    text += &digits[digits.len() - usize::from(*width)..];
                }
                Piece::Column(data, nth) => {
                    text += &String::from_utf8_lossy(data.of_flow(seed, flow, *nth));
                }
            }
        }
        text
    }
}

impl Piece {
    /// The same, with other records.
    fn with(&self, other: impl Fn(&Data) -> Data) -> Self {
        match self {
            Self::Column(data, nth) => Self::Column(other(data), *nth),
            piece => piece.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DataOrder;

    #[test]
    fn each_flow_has_its_name() {
        let names = Names::of(&Message::raw(b"host${flow:3}.test").unwrap()).unwrap();
        let of = |flow| names.name((1, flow)).unwrap().to_str().into_owned();
        assert_eq!([of(0), of(1), of(1999)], ["host000.test", "host001.test", "host999.test"]);
        let data = Data::from_csv(b"host\na.test\nb.test\n", DataOrder::Circular).unwrap();
        let message = Message::raw(b"www.${data:host}").unwrap().with_data(&data).unwrap();
        let names = Names::of(&message).unwrap();
        assert_eq!(names.name((1, 3)).unwrap().to_str(), "www.b.test");
    }

    #[test]
    fn other_marks_and_names_are_errors() {
        let of = |text: &str| Names::of(&Message::raw(text.as_bytes()).unwrap());
        assert!(of("${server}.test").unwrap_err().contains("only ${flow:DIGITS}"));
        assert!(of("_ ${flow:1}").unwrap_err().contains("\"_ 0\" is not a host name"));
        let data = Data::from_csv(b"host\na.test\nb test\n", DataOrder::Random).unwrap();
        let message = Message::raw(b"${data:host}").unwrap().with_data(&data).unwrap();
        assert!(Names::of(&message).unwrap_err().contains("\"b test\" is not a host name"));
    }
}
