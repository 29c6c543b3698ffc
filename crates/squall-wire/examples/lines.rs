//! Prints each packet of a capture in one line, for comparison with `tcpdump -n -t -r`: `lines
//! FILE`.

use squall_pcap::CaptureReader;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut reader = CaptureReader::open(std::env::args().nth(1).ok_or("usage: lines FILE")?)?;
    while let Some(packet) = reader.next()? {
        println!(
            "{}",
            squall_wire::summary(packet.link_type.0, packet.data, packet.wire_len as usize)
        );
    }
    Ok(())
}
