//! A tiny upstream for the demo: answers every request with JSON that names the node.
//!
//! `demo-upstream 127.0.0.1:1980 127.0.0.1:1981` serves one node on each address.
#![allow(clippy::print_stderr)]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Header lines that are read of a request.
const MAX_LINES: usize = 200;
/// How long a client may be silent.
const IDLE: Duration = Duration::from_secs(60);

fn main() -> std::io::Result<()> {
    let addrs: Vec<String> = std::env::args().skip(1).collect();
    let mut nodes = Vec::new();
    for addr in addrs {
        let listener = TcpListener::bind(&addr)?;
        nodes.push(std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let name = addr.clone();
                std::thread::spawn(move || {
                    // A client that breaks off ends its own connection, nothing else.
                    let _ = serve(stream, &name);
                });
            }
        }));
    }
    for node in nodes {
        let _ = node.join();
    }
    Ok(())
}

fn serve(stream: TcpStream, name: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split_whitespace();
        let (method, path) = (words.next().unwrap_or("-"), words.next().unwrap_or("-"));
        let request = format!("\"method\": {method:?}, \"path\": {path:?}");
        let (mut fields, mut length) = (Vec::new(), 0u64);
        for _ in 0..MAX_LINES {
            let mut field = String::new();
            reader.read_line(&mut field)?;
            let Some((key, value)) = field.trim_end().split_once(':') else { break };
            let value = value.trim();
            if key.eq_ignore_ascii_case("content-length") {
                length = value.parse().unwrap_or(0);
            }
            fields.push(format!("    {key:?}: {value:?}"));
        }
        std::io::copy(&mut std::io::Read::take(&mut reader, length), &mut std::io::sink())?;
        let body = format!(
            "{{\n  \"node\": {name:?},\n  {request},\n  \"headers\": {{\n{}\n  }}\n}}\n",
            fields.join(",\n")
        );
        write!(
            writer,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
    }
}
