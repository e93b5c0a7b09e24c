//! The handshake: picks the certificate by the name the client asks for.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use lockgate_plugin::Tls;
use openssl::ssl::{NameType, SslOptions, SslRef, SslVerifyMode};
use pingora_core::listeners::TlsAccept;
use pingora_core::listeners::tls::TlsSettings;

use crate::config::snapshot::Live;

/// TLS settings shared by all TLS listeners.
#[derive(Clone, Debug, Default)]
pub struct ListenerTls {
    /// Allowed versions, such as `TLSv1.2`. Empty: 1.2 and 1.3.
    pub protocols: Vec<String>,
    /// OpenSSL cipher list for TLS 1.2.
    pub ciphers: Option<String>,
    /// The name assumed for clients that send none.
    pub fallback_sni: Option<String>,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
}

/// What later layers learn of a handshake.
pub struct HandshakeFacts {
    /// Versions and names.
    pub tls: Arc<Tls>,
}

struct Accept {
    live: Arc<Live>,
    fallback_sni: Option<String>,
}

/// The settings of one TLS listener.
///
/// # Errors
/// When OpenSSL refuses the settings.
pub fn listener(live: &Arc<Live>, conf: &ListenerTls) -> pingora_core::Result<TlsSettings> {
    let protocols = if conf.protocols.is_empty() {
        vec!["TLSv1.2".to_owned(), "TLSv1.3".to_owned()]
    } else {
        conf.protocols.clone()
    };
    let accept = Accept {
        live: Arc::clone(live),
        fallback_sni: conf.fallback_sni.clone(),
    };
    let mut settings = TlsSettings::with_callbacks(Box::new(accept))?;
    // The base profile starts at TLS 1.2; what the settings name decides instead.
    let known = ["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];
    settings.clear_options(forbid(&known));
    let forbidden: Vec<&str> = known
        .into_iter()
        .filter(|v| !protocols.iter().any(|p| p == v))
        .collect();
    settings.set_options(forbid(&forbidden) | SslOptions::CIPHER_SERVER_PREFERENCE);
    // Resumption would skip the choice of the certificate; tickets stay off as in APISIX.
    settings.set_options(SslOptions::NO_TICKET);
    if let Some(ciphers) = &conf.ciphers {
        let refused = |e: openssl::error::ErrorStack| {
            pingora_core::Error::explain(
                pingora_core::ErrorType::InternalError,
                format!("apisix.ssl.ssl_ciphers is not a cipher list: {e}"),
            )
        };
        settings.set_cipher_list(ciphers).map_err(refused)?;
    }
    if conf.http2 {
        settings.enable_h2();
    }
    Ok(settings)
}

/// A listener with one certificate from files. With the certificates that sign those of clients,
/// clients have to show one.
///
/// # Errors
/// When a file cannot be read or is none.
pub fn from_files(
    cert: &Path,
    key: &Path,
    client_ca: Option<&Path>,
) -> pingora_core::Result<TlsSettings> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut settings = TlsSettings::intermediate(&text(cert), &text(key))?;
    if let Some(ca) = client_ca {
        settings.set_ca_file(ca).map_err(|e| {
            let text = format!("{} holds no certificates: {e}", ca.display());
            pingora_core::Error::explain(pingora_core::ErrorType::InternalError, text)
        })?;
        settings.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
    }
    Ok(settings)
}

fn forbid(versions: &[&str]) -> SslOptions {
    versions
        .iter()
        .fold(SslOptions::empty(), |options, version| {
            options
                | match *version {
                    "TLSv1" => SslOptions::NO_TLSV1,
                    "TLSv1.1" => SslOptions::NO_TLSV1_1,
                    "TLSv1.2" => SslOptions::NO_TLSV1_2,
                    "TLSv1.3" => SslOptions::NO_TLSV1_3,
                    _ => SslOptions::empty(),
                }
        })
}

#[async_trait]
impl TlsAccept for Accept {
    /// Installs the certificates of the name. Without a match nothing is installed and the
    /// handshake ends with an alert, as in APISIX.
    async fn certificate_callback(&self, ssl: &mut SslRef) {
        let asked = ssl.servername(NameType::HOST_NAME).map(str::to_owned);
        let Some(name) = asked.or_else(|| self.fallback_sni.clone()) else {
            return;
        };
        let found = self.live.peek().tls.find(&name).cloned();
        let Some(entry) = found else { return };
        // The version is settled by now: one that the resource forbids ends here.
        if entry
            .protocols
            .as_ref()
            .is_some_and(|p| !p.iter().any(|v| v == ssl.version_str()))
        {
            return;
        }
        for pair in &entry.pairs {
            let mut installed = ssl
                .set_certificate(&pair.leaf)
                .and_then(|()| ssl.set_private_key(&pair.key));
            for link in &pair.chain {
                installed = installed.and_then(|()| ssl.add_chain_cert(link.clone()));
            }
            if let Err(error) = installed {
                tracing::error!(ssl = %entry.id, %error, "certificate not installed");
            }
        }
    }

    async fn handshake_complete_callback(
        &self,
        ssl: &SslRef,
    ) -> Option<Arc<dyn Any + Send + Sync>> {
        let sni = ssl.servername(NameType::HOST_NAME);
        let sni = sni.map(|name| name.trim_end_matches('.').to_ascii_lowercase().into());
        let tls = Tls {
            version: ssl.version_str().to_owned(),
            cipher: ssl
                .current_cipher()
                .map_or(String::new(), |c| c.name().to_owned()),
            sni,
            ..Tls::default()
        };
        Some(Arc::new(HandshakeFacts { tls: Arc::new(tls) }))
    }
}
