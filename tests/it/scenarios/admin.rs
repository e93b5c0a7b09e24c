//! The Admin API over HTTPS.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{gateway, wants};
use crate::World;
use crate::client::{Answer, Connection, Message, Target, Tls};
use crate::gateway::Gateway;
use crate::step::ADMIN_KEY;

/// A GET of the routes with the key, over TLS, with a certificate of these names or none.
async fn ask(world: &World, gateway: &Gateway, cert: Option<&str>) -> Result<Answer> {
    let target = Target {
        address: gateway.address("admin")?,
        bind: None,
        tls: Some(Tls {
            sni: Some("admin.test".to_owned()),
            alpn: Vec::new(),
            cert: cert.map(|names| world.certs.pair(names)).transpose()?,
            version: None,
        }),
    };
    let head = format!(
        "GET /apisix/admin/routes HTTP/1.1\r\nHost: admin.test\r\nX-API-KEY: {ADMIN_KEY}\r\nConnection: close\r\n\r\n"
    );
    let message = Message {
        method: "GET".to_owned(),
        head: head.into_bytes(),
        ..Message::default()
    };
    Ok(match Connection::open(&target).await {
        Ok(mut connection) => connection.exchange(&message).await,
        Err(error) => Answer::failed(&error),
    })
}

pub(super) async fn https(world: Arc<World>) -> Result<()> {
    let own = world.certs.pair("admin.test")?;
    let dir = world.root.join("admin-https");
    std::fs::create_dir_all(&dir)?;
    std::fs::write(dir.join("a.crt"), own.cert_pem()?)?;
    std::fs::write(dir.join("a.key"), own.key_pem()?)?;
    std::fs::write(dir.join("ca.crt"), world.certs.ca_pem()?)?;
    let config = |ca: &str| {
        json!({ "deployment": { "role": "traditional", "admin": {
            "https_admin": true,
            "admin_api_mtls": { "admin_ssl_cert": "a.crt", "admin_ssl_cert_key": "a.key", "admin_ssl_ca_cert": ca },
        } } })
    };
    let plain = gateway(&world, "admin-https", &config(""), json!({})).await?;
    let answer = ask(&world, &plain, None).await?;
    wants(&answer, 200, "over TLS")?;
    ensure!(
        answer.certificate.as_deref() == Some("admin.test"),
        "{:?}",
        answer.certificate
    );
    ensure!(plain.stop().await?.success(), "the gateway failed");

    let mutual = gateway(&world, "admin-https", &config("ca.crt"), json!({})).await?;
    let answer = ask(&world, &mutual, None).await?;
    ensure!(
        answer.status.is_none(),
        "a client without a certificate is let in"
    );
    wants(
        &ask(&world, &mutual, Some("client.test")).await?,
        200,
        "with a certificate",
    )?;
    ensure!(mutual.stop().await?.success(), "the gateway failed");
    Ok(())
}
