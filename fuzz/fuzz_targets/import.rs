//! Any capture: imported programs are valid, send as many octets as the report says, and observe
//! its limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_apps::{
    Apps, Delays, Holes, ImportOptions, Instruction, Message, MessageRef, Program, import,
};
use squall_pcap::CaptureReader;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, file)) = data.split_first() else { return };
    let options = ImportOptions {
        delays: [Delays::Keep, Delays::Drop, Delays::Scale(1e9), Delays::Scale(0.1)]
            [usize::from(choice) % 4],
        holes: if choice & 4 == 0 { Holes::Cut } else { Holes::Zeros },
        most_conversations: 64,
        most_octets: 1 << 20,
        ..ImportOptions::default()
    };
    let Ok(mut reader) = CaptureReader::from_read(file) else { return };
    let found = match import(&mut reader, "fuzz", &options) {
        Ok(found) => found,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let mut apps = Apps::new(1, ());
    for one in &found.conversations {
        let report = &one.report;
        let missing: u64 = report.holes.iter().map(|hole| hole.octets).sum();
        let sent = sent_octets(&one.client) + sent_octets(&one.server);
        let captured = report.of_client.octets + report.of_server.octets;
        match options.holes {
            // A reset may discard the data that follows it.
            Holes::Zeros => assert!(sent <= captured + missing),
            Holes::Cut => assert!(sent + report.cut <= captured),
        }
        for program in [&one.client, &one.server] {
            apps.add(program).expect("what is imported is right");
        }
    }
});

fn sent_octets(program: &Program) -> u64 {
    let len = |message: &Message| message.fixed_len().expect("octets alone");
    let each = program.instructions.iter().map(|instruction| match instruction {
        Instruction::Send(MessageRef::Given(message))
        | Instruction::SendPacket(MessageRef::Given(message)) => len(message),
        _ => 0,
    });
    each.sum()
}
