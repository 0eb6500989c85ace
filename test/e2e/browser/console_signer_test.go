package browser_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestConsoleSigners adds a signer to an organization and deletes it. The signer must apply to a folder until the
// folder has its own signer. A viewer must see no buttons, and the API must refuse a viewer's requests.
func TestConsoleSigners(t *testing.T) { onBoth(t, walkSigners) }

func walkSigners(t *testing.T, s *site) {
	p, b := s.owner(t), newTab(t)
	p.run("iam", "groups", "create", "signed", "--parent", "dev")
	folder := p.resolve("dev/signed", "groups")
	organization, below := "/console/groups/"+s.OrganizationUID+"?tab=signers", "/console/groups/"+folder+"?tab=signers"
	b.console(s, organization, s.OwnerEmail, s.OwnerPassword)
	b.read("There is no signer that you can see")
	b.judge("signers-none")
	b.press("Trust a signer…")
	b.fill("Name", "release")
	b.fill("Public key", "not a key")
	b.press("Trust it")
	b.run("what is no key is refused", chromedp.WaitVisible(`dialog textarea[aria-invalid]`, chromedp.ByQuery))
	b.judge("signer-new")
	key := publicKey(t)
	b.fill("Public key", key)
	b.fill("Description", "what people may run")
	b.press("Trust it")
	b.closed()
	b.read("what people may run")
	b.read("a key")
	b.judge("signers")

	b.open(s.BaseURL + below)
	b.read("This group has no signer that you can see, so the signers of dev apply to it.")
	b.lacks("Delete…") // the signer belongs to the parent group
	b.judge("signers-above")
	b.press("Trust a signer…")
	b.choose("It signs with", "an identity, without a key")
	b.fill("Name", "ci")
	b.fill("Issuer", "https://token.actions.githubusercontent.com")
	b.fill("Subject", "https://github.com/acme/(")
	b.run("a pattern", chromedp.Click(`//label[contains(., "It is a regular expression")]/input`, chromedp.NodeVisible))
	b.press("Trust it")
	b.run("what is no pattern is refused", chromedp.WaitVisible(`dialog [aria-invalid]`, chromedp.ByQuery))
	b.judge("signer-identity")
	b.choose("It signs with", "its own key")
	b.fill("Public key", key)
	var command string
	b.run("read the command", chromedp.Text(`dialog pre`, &command, chromedp.ByQuery))
	b.press("Trust it")
	b.closed()
	b.lacks("release")
	file := filepath.Join(t.TempDir(), "cosign.pub")
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	p.shell("the same for another", strings.NewReplacer("FILE", file, "create ci", "create nightly").Replace(command))
	b.reload("nightly")

	eve := s.eve(t, "--role", "viewer")
	eve.open(s.BaseURL + organization)
	eve.read("release")
	eve.lacks("Delete…", "Trust a signer…")
	signer := p.run("registry", "signers", "list", "--parent", "/dev", "-o", "id")
	eve.refused("DELETE", "/oci/v1/signers/"+signer, "")
	eve.refused("POST", "/oci/v1/signers/"+s.OrganizationUID,
		`{"name": "eve", "key": "`+strings.ReplaceAll(key, "\n", `\n`)+`"}`)

	b.open(s.BaseURL + organization)
	b.press("Delete release")
	b.read("is not signed any more, at once")
	b.judge("signer-delete")
	b.press("Delete")
	b.closed()
	b.read("There is no signer that you can see")
}

// publicKey returns a new public key in PEM.
func publicKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}
