//! Other text protocols: FTP (RFC 959), Telnet (RFC 854), NNTP (RFC 3977), IRC (RFC 2812).

use squall_rules::{Application, ApplicationTest, Buffer, End};

use super::dialog::{Dialog, Step, joined, line, one_line};
use super::{Assembled, Impossible, Parts, SecondConnection, merged};
use crate::{Octets, Turn};

pub(super) fn conversation(
    application: Application,
    parts: &Parts,
) -> Result<Vec<Turn>, Impossible> {
    match application {
        Application::Telnet => telnet(parts),
        Application::Nntp => nntp(parts),
        Application::Irc => irc(parts),
        _ => ftp(parts),
    }
}

fn ftp(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let mut dialog = login();
    dialog.middle = 2;
    let (client, server) = (End::Client, End::Server);
    let command = parts.get(Buffer::FtpCommand, client);
    let data = parts.get(Buffer::FtpCommandData, client);
    let reply = parts.get(Buffer::FtpReply, server);
    let code = parts.get(Buffer::FtpCompletionCode, server);
    if command.is_some() || data.is_some() || reply.is_some() || code.is_some() {
        let usual = Octets::from(if data.is_some() { "CWD" } else { "SYST" });
        let word = one_line(Buffer::FtpCommand, command.unwrap_or(&usual))?;
        let mut command_line = word.clone();
        if let Some(data) = data {
            command_line = joined(&[word, &" ".into(), one_line(Buffer::FtpCommandData, data)?]);
        } else if let Some(argument) = argument(word.bytes()) {
            command_line = joined(&[word, &" ".into(), &argument.into()]);
        }
        command_line.append(&"\r\n".into());
        let usual_code = Octets::from(self::code(word.bytes()));
        let code = one_line(Buffer::FtpCompletionCode, code.unwrap_or(&usual_code))?;
        let usual_reply = Octets::from("Ok");
        let reply = one_line(Buffer::FtpReply, reply.unwrap_or(&usual_reply))?;
        let answer = joined(&[code, &" ".into(), reply, &"\r\n".into()]);
        let same = |step: &Step| step.command.bytes().starts_with(word.bytes()) && word.len() == 4;
        match dialog.steps.iter_mut().find(|step| same(step)) {
            Some(step) => *step = Step { command: command_line, answer },
            None => dialog.steps.insert(dialog.middle, Step { command: command_line, answer }),
        }
    } else if parts.tests.contains(&ApplicationTest::FtpBounce) {
        // The command names a port on a third host.
        dialog
            .steps
            .insert(dialog.middle, Step::new("PORT 192,0,2,99,4,1", "200 PORT command successful"));
    }
    dialog.payloads(parts);
    dialog.turns(parts)
}

fn login() -> Dialog {
    let mut dialog = Dialog::new("220 FTP server ready");
    dialog.step("USER anonymous", "331 Please specify the password.");
    dialog.step("PASS user@example.com", "230 Login successful.");
    dialog.step("QUIT", "221 Goodbye.");
    dialog
}

/// The argument that a command requires.
fn argument(command: &[u8]) -> Option<&'static str> {
    match command.to_ascii_uppercase().as_slice() {
        b"USER" => Some("anonymous"),
        b"PASS" => Some("user@example.com"),
        b"TYPE" => Some("I"),
        b"EPRT" => Some("|1|192.0.2.1|1025|"),
        b"PORT" => Some("192,0,2,1,4,1"),
        b"CWD" | b"RETR" | b"STOR" | b"DELE" | b"MKD" | b"RMD" | b"RNFR" | b"RNTO" | b"SIZE"
        | b"MDTM" | b"APPE" | b"STOU" => Some("file"),
        b"SITE" => Some("HELP"),
        _ => None,
    }
}

fn code(command: &[u8]) -> &'static str {
    match command.to_ascii_uppercase().as_slice() {
        b"USER" => "331",
        b"PASS" => "230",
        b"SYST" => "215",
        b"QUIT" => "221",
        b"CWD" | b"DELE" | b"RMD" | b"RNTO" => "250",
        b"MKD" | b"PWD" => "257",
        b"RNFR" => "350",
        _ => "200",
    }
}

/// Fetches or stores a file over a data connection. The server announces its port (RFC 2428).
pub(super) fn file(parts: &Parts) -> Result<Assembled, Impossible> {
    // A port in the dynamic range (RFC 6335 §6).
    const PORT: u16 = 50_021;
    let from = if parts.sends(End::Client) && !parts.sends(End::Server) {
        End::Client
    } else {
        End::Server
    };
    let required =
        parts.buffers.iter().find(|part| part.0 == Buffer::FtpDataCommand).map(|part| &part.2);
    let usual = Octets::from(if from == End::Client { "STOR" } else { "RETR" });
    let command = required.unwrap_or(&usual);
    let from = match command.bytes().to_ascii_uppercase().as_slice() {
        b"STOR" => End::Client,
        b"RETR" => End::Server,
        other => {
            return Err(Impossible(format!(
                "{:?} is neither RETR nor STOR",
                String::from_utf8_lossy(other)
            )));
        }
    };
    let usual = Octets::from("file.bin");
    let name = parts.get(Buffer::FileName, from).unwrap_or(&usual);
    let mut dialog = login();
    dialog.steps.insert(2, Step::new("TYPE I", "200 Switching to Binary mode."));
    dialog
        .steps
        .insert(3, Step::new("EPSV", &format!("229 Entering Extended Passive Mode (|||{PORT}|)")));
    let command_line =
        joined(&[command, &" ".into(), one_line(Buffer::FileName, name)?, &"\r\n".into()]);
    dialog
        .steps
        .insert(4, Step { command: command_line, answer: line("150 Opening data connection.") });
    let mut turns = dialog.turns(&Parts::default())?;
    // Omit QUIT, because the control connection stays open during the transfer.
    turns.truncate(turns.len() - 2);
    let data = [Buffer::FileData, Buffer::Payload, Buffer::RawPayload];
    let data = merged(data.into_iter().flat_map(|buffer| parts.all(buffer, from)), b"");
    let data = if data.is_empty() { Octets::from("A file.\r\n") } else { data };
    Ok(Assembled {
        turns,
        second: Some(SecondConnection { server_port: PORT, turns: vec![Turn::new(from, data)] }),
    })
}

fn telnet(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    // DO terminal type, WILL echo, WILL suppress go-ahead; and the replies of the client.
    let mut turns = vec![
        Turn::new(End::Server, Octets::framing([255, 253, 24, 255, 251, 1, 255, 251, 3])),
        Turn::new(End::Client, Octets::framing([255, 252, 24, 255, 253, 1, 255, 253, 3])),
    ];
    let mut dialog = Dialog { banner: "\r\nlogin: ".into(), ..Dialog::default() };
    dialog.steps = vec![
        Step { command: line("user"), answer: "Password: ".into() },
        Step { command: line("secret"), answer: "\r\nWelcome\r\n$ ".into() },
        Step { command: line("exit"), answer: line("logout") },
    ];
    dialog.middle = 2;
    dialog.payloads(parts);
    turns.extend(dialog.turns(parts)?);
    Ok(turns)
}

fn nntp(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let mut dialog = Dialog::new("200 news.example.com ready - posting ok");
    dialog.step("MODE READER", "200 posting allowed");
    dialog.step("QUIT", "205 closing connection");
    dialog.middle = 1;
    dialog.payloads(parts);
    dialog.turns(parts)
}

fn irc(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let mut dialog = Dialog::default();
    dialog.step(
        "NICK user51\r\nUSER user51 0 * :user51",
        ":irc.example.com 001 user51 :Welcome to IRC user51",
    );
    dialog.step("JOIN #room", ":user51!user51@192.0.2.1 JOIN #room");
    dialog.step("QUIT :bye", "ERROR :Closing Link");
    dialog.middle = 2;
    dialog.payloads(parts);
    dialog.turns(parts)
}

#[cfg(test)]
mod tests {
    use super::super::{assemble, assemble_all, testing};
    use super::*;

    fn dialog(application: Application, buffers: &[(Buffer, End, &str)]) -> String {
        testing::texts(application, &testing::with(buffers)).concat()
    }

    #[test]
    fn a_command_of_ftp_has_its_argument_and_its_answer() {
        let all = dialog(
            Application::Ftp,
            &[
                (Buffer::FtpCommand, End::Client, "SITE"),
                (Buffer::FtpCommandData, End::Client, "EXEC evil"),
                (Buffer::FtpCompletionCode, End::Server, "500"),
            ],
        );
        assert!(all.contains("230 Login successful.\r\nSITE EXEC evil\r\n500 Ok\r\nQUIT"), "{all}");
        let all = dialog(
            Application::Ftp,
            &[
                (Buffer::FtpCommandData, End::Client, "root"),
                (Buffer::FtpCommand, End::Client, "USER"),
            ],
        );
        assert!(all.starts_with("220 FTP server ready\r\nUSER root\r\n331 Ok\r\nPASS"), "{all}");
    }

    #[test]
    fn a_file_of_ftp_uses_the_announced_port() {
        let parts = Parts {
            buffers: vec![(Buffer::FileData, End::Server, "evil".into())],
            ..Parts::default()
        };
        let all = assemble_all(Application::FtpData, &parts).unwrap();
        let second = all.second.unwrap();
        assert_eq!(second.turns, [Turn::new(End::Server, "evil".into())]);
        let port = format!("(|||{}|)", second.server_port);
        assert!(
            all.turns
                .iter()
                .any(|turn| String::from_utf8_lossy(turn.octets.bytes()).contains(&port))
        );
        assert!(assemble(Application::FtpData, &parts).is_err());
    }

    #[test]
    fn a_payload_follows_the_login() {
        let all = dialog(
            Application::Telnet,
            &[(Buffer::Payload, End::Client, "evil"), (Buffer::Payload, End::Server, "pwned")],
        );
        assert!(all.contains("$ evil\r\npwned\r\nexit\r\n"), "{all}");
        let all =
            dialog(Application::Irc, &[(Buffer::Payload, End::Client, "PRIVMSG #room :evil")]);
        assert!(all.contains("JOIN #room\r\nPRIVMSG #room :evil\r\n"), "{all}");
        let all = dialog(Application::Nntp, &[(Buffer::Payload, End::Server, "200 evil")]);
        assert!(all.starts_with("200 evil\r\nMODE READER"), "{all}");
    }
}
