//! Integers with a prefix of some bits (RFC 9204 section 4.1.1), up to 62 bits long.

use super::QpackError;

/// The largest integer that has to be decoded.
const MOST: u64 = (1 << 62) - 1;

/// Appends `value`; the bits of `flags` above the prefix of `prefix` bits (3 to 8) are kept.
pub(super) fn encode(prefix: u8, flags: u8, value: u64, out: &mut Vec<u8>) {
    let most = u8::MAX >> (8 - prefix);
    match u8::try_from(value) {
        Ok(small) if small < most => out.push(flags | small),
        _ => {
            out.push(flags | most);
            let mut rest = value - u64::from(most);
            while rest >= 0x80 {
                out.push(0x80 | (rest & 0x7f) as u8);
                rest >>= 7;
            }
            out.push(rest as u8);
        }
    }
}

/// Takes an integer from `input`, whose first octet has it in its last `prefix` bits.
pub(super) fn decode(prefix: u8, input: &mut &[u8]) -> Result<u64, QpackError> {
    let (&first, mut rest) = input.split_first().ok_or(QpackError::Truncated)?;
    let most = u8::MAX >> (8 - prefix);
    let mut value = u64::from(first & most);
    if first & most == most {
        let mut shift = 0;
        loop {
            // Nine octets: zeros that only make an integer longer end as well.
            if shift > 56 {
                return Err(QpackError::Integer);
            }
            let (&octet, more) = rest.split_first().ok_or(QpackError::Truncated)?;
            rest = more;
            value += u64::from(octet & 0x7f) << shift;
            shift += 7;
            if octet & 0x80 == 0 {
                break;
            }
        }
    }
    if value > MOST {
        return Err(QpackError::Integer);
    }
    *input = rest;
    Ok(value)
}
