//! Connections between peers: TLS 1.3, and both sides prove who they are.
//!
//! With certificates each gateway has one that its authority signed and that names the host it is known by;
//! both sides check both. With a secret it is TLS's own pre-shared key: who does not know it cannot finish
//! the handshake, on either side, and the connection is as private as with certificates.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkcs5::pbkdf2_hmac;
use openssl::ssl::{
    AlpnError, Ssl, SslContext, SslContextBuilder, SslFiletype, SslMethod, SslOptions,
    SslSessionCacheMode, SslVerifyMode, SslVersion,
};
use openssl::x509::verify::X509CheckFlags;
use tokio::net::TcpStream;
use tokio_openssl::SslStream;

/// A connection.
pub type Stream = SslStream<TcpStream>;

/// What is spoken; a listener of something else that trusts the same authority does not say it.
const ALPN: &[u8] = b"\x0flockgate-peer/1";
/// The name of the key: TLS wants one.
const IDENTITY: &[u8] = b"lockgate";
/// Shorter secrets could be found by trying: whoever hears a handshake may try as often as he likes.
pub const SHORTEST_SECRET: usize = 16;

/// What the secret is stretched with: the same for all, as all need the same key.
const SALT: &[u8] = b"lockgate peers 1";
/// Times that the secret is hashed, once at the start: whoever heard a handshake pays that for each guess.
const STRETCHES: usize = 200_000;

/// How a gateway proves that it belongs to the others.
#[derive(Clone, PartialEq, Eq)]
pub enum Identity {
    /// By a certificate.
    Certificate {
        /// Who signs the certificates.
        ca: PathBuf,
        /// Its own, with what leads to the authority.
        cert: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// By something that all know.
    Secret(String),
}

impl std::fmt::Debug for Identity {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Identity::Certificate { cert, .. } => write!(f, "Certificate({})", cert.display()),
            Identity::Secret(_) => f.write_str("Secret"),
        }
    }
}

/// Why connections cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// A file cannot be read, or is not what it should be.
    #[error("cannot use `{path}`")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: ErrorStack,
    },
    /// OpenSSL cannot do it.
    #[error("TLS cannot be set up")]
    Tls(#[from] ErrorStack),
    /// See [`SHORTEST_SECRET`].
    #[error("the secret is shorter than {SHORTEST_SECRET} bytes")]
    Secret,
}

/// Why a connection was not made.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The handshake failed.
    #[error("the other side did not prove who it is: {0}")]
    Handshake(#[from] openssl::ssl::Error),
    /// OpenSSL cannot do it.
    #[error("TLS cannot be started")]
    Tls(#[from] ErrorStack),
    /// It is no peer, though it has a certificate or the secret.
    #[error("it does not speak as a peer")]
    Protocol,
    /// The certificate is another's.
    #[error("its certificate does not name `{0}`")]
    Name(String),
}

/// See the module.
pub struct Secure {
    dials: SslContext,
    takes: SslContext,
    /// Whether certificates say who it is.
    names: bool,
}

impl Secure {
    /// # Errors
    /// When files or secret cannot be used.
    pub fn new(identity: &Identity) -> Result<Secure, Unusable> {
        let mut dials = context(SslMethod::tls_client())?;
        let mut takes = context(SslMethod::tls_server())?;
        dials.set_alpn_protos(ALPN)?;
        takes.set_alpn_select_callback(|_, offered| {
            openssl::ssl::select_next_proto(ALPN, offered).ok_or(AlpnError::ALERT_FATAL)
        });
        // With a secret nobody is trusted, so that who comes with a certificate is not taken either.
        dials.set_verify(SslVerifyMode::PEER);
        match identity {
            Identity::Certificate { ca, cert, key } => {
                for context in [&mut dials, &mut takes] {
                    read(context.set_ca_file(ca), ca)?;
                    read(context.set_certificate_chain_file(cert), cert)?;
                    read(context.set_private_key_file(key, SslFiletype::PEM), key)?;
                    read(context.check_private_key(), key)?;
                }
                takes.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
            }
            Identity::Secret(secret) => share(secret, &mut dials, &mut takes)?,
        }
        Ok(Secure {
            dials: dials.build(),
            takes: takes.build(),
            names: matches!(identity, Identity::Certificate { .. }),
        })
    }

    /// The side that connected.
    pub async fn dial(&self, tcp: TcpStream, host: &str) -> Result<Stream, Refused> {
        let mut ssl = Ssl::new(&self.dials)?;
        if self.names {
            let wanted = ssl.param_mut();
            wanted.set_hostflags(X509CheckFlags::NO_WILDCARDS);
            match host.parse::<IpAddr>() {
                Ok(ip) => wanted.set_ip(ip)?,
                Err(_) => wanted.set_host(host)?,
            }
        }
        let mut stream = SslStream::new(ssl, tcp)?;
        Pin::new(&mut stream).connect().await?;
        spoken(stream)
    }

    /// The side that was connected to.
    pub async fn take(&self, tcp: TcpStream) -> Result<Stream, Refused> {
        let mut stream = SslStream::new(Ssl::new(&self.takes)?, tcp)?;
        Pin::new(&mut stream).accept().await?;
        spoken(stream)
    }

    /// Who the other side may say that it is.
    pub fn claims(&self, stream: &Stream) -> Claims {
        if !self.names {
            return Claims(None);
        }
        let cert = stream.ssl().peer_certificate();
        let names = cert.and_then(|cert| cert.subject_alt_names());
        let names = names.iter().flatten().filter_map(|name| {
            let ip = name.ipaddress().and_then(|ip| match ip.len() {
                4 => <[u8; 4]>::try_from(ip).ok().map(IpAddr::from),
                _ => <[u8; 16]>::try_from(ip).ok().map(IpAddr::from),
            });
            let dns = name.dnsname().map(|dns| dns.to_ascii_lowercase());
            ip.map(|ip| ip.to_string()).or(dns)
        });
        Claims(Some(names.collect()))
    }
}

/// The hosts that a certificate names; with a secret all are alike.
#[derive(Debug)]
pub struct Claims(Option<Vec<String>>);

impl Claims {
    /// # Errors
    /// When the certificate names another.
    pub fn check(&self, host: &str) -> Result<(), Refused> {
        let Some(names) = &self.0 else { return Ok(()) };
        let ip = host.parse::<IpAddr>().map(|ip| ip.to_string());
        let wanted = ip.unwrap_or_else(|_| host.to_ascii_lowercase());
        if names.contains(&wanted) {
            return Ok(());
        }
        Err(Refused::Name(host.to_owned()))
    }
}

/// A side that offers or selects nothing has not agreed to anything.
fn spoken(stream: Stream) -> Result<Stream, Refused> {
    // Behind its length.
    let is = stream.ssl().selected_alpn_protocol() == ALPN.get(1..);
    is.then_some(stream).ok_or(Refused::Protocol)
}

fn context(method: SslMethod) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContextBuilder::new(method)?;
    // One version: there is nobody to be compatible with.
    context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    // Connections live long: nothing is gained by resuming them.
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    context.set_options(SslOptions::NO_TICKET);
    Ok(context)
}

fn read<T>(read: Result<T, ErrorStack>, path: &Path) -> Result<T, Unusable> {
    read.map_err(|source| Unusable::File {
        path: path.to_owned(),
        source,
    })
}

fn share(
    secret: &str,
    dials: &mut SslContextBuilder,
    takes: &mut SslContextBuilder,
) -> Result<(), Unusable> {
    if secret.len() < SHORTEST_SECRET {
        return Err(Unusable::Secret);
    }
    let mut key = [0; 32];
    let digest = MessageDigest::sha256();
    pbkdf2_hmac(secret.as_bytes(), SALT, STRETCHES, digest, &mut key)?;
    let put = move |into: &mut [u8]| match into.get_mut(..key.len()) {
        Some(place) => {
            place.copy_from_slice(&key);
            Ok(key.len())
        }
        // No key, no handshake.
        None => Ok(0),
    };
    dials.set_psk_client_callback(move |_, _, identity, into| {
        // With its end, as C has it.
        let Some((place, rest)) = identity.split_at_mut_checked(IDENTITY.len()) else {
            return Ok(0);
        };
        let Some(end) = rest.first_mut() else {
            return Ok(0);
        };
        place.copy_from_slice(IDENTITY);
        *end = 0;
        put(into)
    });
    takes.set_psk_server_callback(move |_, identity, into| {
        if identity == Some(IDENTITY) {
            put(into)
        } else {
            Ok(0)
        }
    });
    Ok(())
}
