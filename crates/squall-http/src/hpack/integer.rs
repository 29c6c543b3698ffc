//! Integers with a prefix of some bits (RFC 7541 section 5.1).

use super::HpackError;

/// Appends `value`; the bits of `flags` above the prefix of `prefix` bits (4 to 7) are kept.
pub(super) fn encode(prefix: u8, flags: u8, value: u32, out: &mut Vec<u8>) {
    let most = (1u8 << prefix) - 1;
    match u8::try_from(value) {
        Ok(small) if small < most => out.push(flags | small),
        _ => {
            out.push(flags | most);
            let mut rest = value - u32::from(most);
            while rest >= 0x80 {
                out.push(0x80 | (rest & 0x7f) as u8);
                rest >>= 7;
            }
            out.push(rest as u8);
        }
    }
}

/// Takes an integer from `input`, whose first octet has it in its last `prefix` bits.
pub(super) fn decode(prefix: u8, input: &mut &[u8]) -> Result<u32, HpackError> {
    let (&first, mut rest) = input.split_first().ok_or(HpackError::Truncated)?;
    let most = (1u8 << prefix) - 1;
    let mut value = u32::from(first & most);
    if first & most == most {
        let mut shift = 0;
        loop {
            let (&octet, more) = rest.split_first().ok_or(HpackError::Truncated)?;
            rest = more;
            // Four octets: 2^28 is more than any length or index here, and zeros that only make an
            // integer longer end as well.
            if shift > 21 {
                return Err(HpackError::Integer);
            }
            value += u32::from(octet & 0x7f) << shift;
            shift += 7;
            if octet & 0x80 == 0 {
                break;
            }
        }
    }
    *input = rest;
    Ok(value)
}
