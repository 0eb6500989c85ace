package maintenance

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/holdfast-dev/holdfast/internal/server/config"
	"github.com/holdfast-dev/holdfast/internal/server/installation"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/ops/backup"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/signin/tokendb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/health"
	"github.com/holdfast-dev/holdfast/internal/store/schema"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

// Limits of the checks.
const (
	skewWarns, skewFails  = time.Second, 10 * time.Second
	diskWarns, diskFails  = 1 << 30, 128 << 20 // bytes of free disk space
	certificateWarns      = 14 * 24 * time.Hour
	replicaGone           = 10 * time.Second // time without a heartbeat after which a replica counts as stopped
	sampledBlobs          = 20
	maxSampled            = 64 << 20 // largest blob that is read completely, in bytes
	namedIssuers          = 5        // maximum number of issuers that a warning names
	askServer, askStorage = 5 * time.Second, time.Minute
	reachIn               = 8 * time.Second // time in which the storage must answer
)

// A diagnosis is the result of one check.
type diagnosis struct {
	Check  string `json:"check"`
	State  string `json:"state"` // ok, warning or failure
	Says   string `json:"says"`
	Advice string `json:"advice,omitempty"` // action for the operator, unless the state is ok
}

// The states of diagnoses.
const (
	isOK      = "ok"
	isWarning = "warning"
	isFailure = "failure"
)

// ErrWarnings is the result of a command that has written warnings, and has found
// no problem that keeps the server from working.
var ErrWarnings = errors.New("there are warnings")

// A doctor examines an installation. It changes nothing and needs no running server.
type doctor struct {
	cfg       config.Config
	addr      net.Addr  // address that the server would bind
	db        *store.DB // nil if the database cannot be opened
	diagnoses []diagnosis
}

func (d *doctor) ok(check, format string, args ...any) {
	d.diagnoses = append(d.diagnoses, diagnosis{Check: check, State: isOK, Says: fmt.Sprintf(format, args...)})
}

func (d *doctor) warn(check, advice, format string, args ...any) {
	d.diagnoses = append(d.diagnoses, diagnosis{check, isWarning, fmt.Sprintf(format, args...), advice})
}

func (d *doctor) fail(check, advice, format string, args ...any) {
	d.diagnoses = append(d.diagnoses, diagnosis{check, isFailure, fmt.Sprintf(format, args...), advice})
}

// Doctor examines the installation and writes its diagnoses. It returns ErrWarnings
// if there are warnings, and another error if a check has failed.
func Doctor(ctx context.Context, cfg config.Config, args []string, out io.Writer) error {
	asJSON := slices.Equal(args, []string{"json"})
	if len(args) > 0 && !asJSON {
		return fault.Field("arguments", "doctor accepts only --json")
	}
	addr := cfg.ListenAddr()
	d := &doctor{cfg: cfg.At(addr), addr: addr}
	d.settings()
	d.database(ctx)
	d.key(ctx)
	d.disk()
	d.kernel()
	d.certificate()
	d.blobs(ctx)
	d.issuers(ctx)
	d.mail(ctx)
	d.server(ctx)
	if d.db != nil {
		if err := d.db.Close(); err != nil {
			return err
		}
	}
	if err := d.write(out, asJSON); err != nil {
		return err
	}
	failed := slices.ContainsFunc(d.diagnoses, func(f diagnosis) bool { return f.State == isFailure })
	warned := slices.ContainsFunc(d.diagnoses, func(f diagnosis) bool { return f.State == isWarning })
	switch {
	case failed:
		return errors.New("the installation does not work; follow the advice above")
	case warned:
		return ErrWarnings
	}
	return nil
}

func (d *doctor) write(out io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(d.diagnoses)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range d.diagnoses {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.State, f.Check, f.Says)
		if f.Advice != "" {
			fmt.Fprintf(w, "\t\t→ %s\n", f.Advice)
		}
	}
	return w.Flush()
}

func (d *doctor) settings() {
	if err := d.cfg.Check(); err != nil {
		d.fail("settings", "correct the settings; holdfastd --help explains them", "%v", err)
		return
	}
	d.ok("settings", "base_url is %s", d.cfg.BaseURL)
}

func (d *doctor) database(ctx context.Context) {
	db, err := store.OpenToRead(ctx, d.cfg.Database)
	// A missing socket of PostgreSQL is the same error as a missing file of SQLite.
	if missing := errors.Is(err, os.ErrNotExist) && !d.cfg.OnPostgres(); missing && d.hasRemains() {
		d.fail("database", "correct the settings database and data_dir, or restore a back-up; a new database would have "+
			"none of the data", "there is none, but %s has a key or blobs of an installation", d.cfg.DataDir)
		return
	} else if missing {
		d.warn("database", "if this is a new installation, start the server, which creates the database", "there is none yet")
		return
	}
	if err != nil {
		d.fail("database", "check the setting database, and that its server accepts connections from this machine",
			"%s", fault.Explain(err))
		return
	}
	v, err := health.Inspect(ctx, db)
	if err != nil {
		d.fail("database", "check that it is a database of Holdfast", "%s", errors.Join(err, db.Close()))
		return
	}
	d.db = db
	d.ok("database", "%s answers in %s", v.Version, v.Latency.Round(time.Microsecond))
	d.schema(v.Schema, v.Needs)
	if !db.Replicated() {
		return
	}
	const synchronize = "synchronize the clocks of this machine and of the database (NTP)"
	switch skew := v.Skew.Abs(); {
	case skew > skewFails:
		d.fail("clock", synchronize, "the clock of the database differs by %s from the clock of this machine", v.Skew)
	case skew > skewWarns:
		d.warn("clock", synchronize, "the clock of the database differs by %s from the clock of this machine", v.Skew)
	default:
		d.ok("clock", "the clock of the database differs by %s from the clock of this machine", v.Skew)
	}
	d.replicas(v.Replicas)
}

// hasRemains reports whether the data folder has the key or the blobs of an installation.
func (d *doctor) hasRemains() bool {
	if _, err := os.Stat(d.cfg.KeyFile()); err == nil {
		return true
	}
	entries, err := os.ReadDir(filepath.Join(d.cfg.DataDir, "blobs"))
	return err == nil && len(entries) > 0
}

func (d *doctor) schema(has, needs int64) {
	knows, err := store.KnownSchema()
	unreleased := schema.CheckReleased(has)
	switch {
	case err != nil:
		d.fail("schema", "install the program again", "%v", err)
	case unreleased != nil:
		d.fail("schema", "use an empty database, or the version that created this one", "%v", unreleased)
	case needs > knows:
		d.fail("schema", "start the version that created this schema, or a later version",
			"the database has schema %d, and this program supports at most %d", has, knows)
	case has > knows:
		d.ok("schema", "%d, from a later version, which this program supports", has)
	case has < knows:
		d.warn("schema", "make a back-up; the server migrates the schema at its next start",
			"the database has schema %d, and this program needs %d", has, knows)
	default:
		d.ok("schema", "%d", has)
	}
}

func (d *doctor) replicas(all []health.Replica) {
	live, behind := 0, []string{}
	for _, r := range all {
		if r.Age > replicaGone {
			continue
		}
		if live++; r.Behind > 0 {
			behind = append(behind, fmt.Sprintf("%s by %d", r.ID, r.Behind))
		}
	}
	if len(behind) > 0 {
		d.warn("replicas", "run doctor again in a few seconds; if they are still behind, check their logs and load",
			"%d run; these have not applied all changes: %s", live, strings.Join(behind, ", "))
		return
	}
	d.ok("replicas", "%d run", live)
}

func (d *doctor) key(ctx context.Context) {
	key, err := installation.ExistingKey(d.cfg)
	if err != nil {
		if d.db == nil {
			d.warn("key", "if this is a new installation, start the server, which creates the key", "there is none yet")
			return
		}
		d.fail("key", "bring back the key of this installation, because the secrets cannot be read without it", "%s",
			fault.Explain(err))
		return
	}
	if d.db != nil {
		if err := installation.CheckSecrets(ctx, d.db, key); err != nil {
			d.fail("key", "bring back the key of this installation, because this key is a different one", "%v", err)
			return
		}
	}
	path := d.cfg.KeyFile()
	if info, err := os.Stat(path); d.cfg.EncryptionKey == "" && err == nil && info.Mode().Perm()&0o077 != 0 {
		d.fail("key", "chmod 600 "+path, "other users of this machine may read %s (%s)", path, info.Mode().Perm())
		return
	}
	d.ok("key", "its fingerprint is %s", backup.Fingerprint(key))
}

func (d *doctor) disk() {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(d.cfg.DataDir, &fs); err != nil {
		d.warn("disk", "create the data folder, or correct data_dir", "%s: %v", d.cfg.DataDir, err)
		return
	}
	free := int64(fs.Bavail) * int64(fs.Bsize) //nolint:unconvert // other systems have other types
	const advice = "free space on the disk of data_dir: a full disk refuses every write"
	switch {
	case free < diskFails:
		d.fail("disk", advice, "%s is free", config.Size(free))
	case free < diskWarns:
		d.warn("disk", advice, "%s is free", config.Size(free))
	default:
		d.ok("disk", "%s is free", config.Size(free))
	}
	info, err := os.Stat(d.cfg.DataDir)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		d.warn("data folder", "chmod 700 "+filepath.Clean(d.cfg.DataDir), "other users of this machine may open it (%s)",
			info.Mode().Perm())
	}
}

// kernel checks whether the kernel keeps the process that reads images away from files.
func (d *doctor) kernel() {
	const advice = "use Linux 5.13 or newer with landlock among its security modules (lsm=), and a container that " +
		"allows the landlock system calls; or set inspect_workers to -1, so that no image is read"
	switch says := "the kernel does not have Landlock: a bug in a parser of packages would let a hostile image read " +
		"the files of the server"; {
	case d.cfg.InspectWorkers < 0:
		return
	case inspect.Landlock():
		d.ok("kernel", "Landlock keeps the process that reads images away from files")
	case d.cfg.NeedLandlock:
		d.fail("kernel", advice, "%s; require_landlock is set, so the server does not start", says)
	default:
		d.warn("kernel", advice, "%s", says)
	}
}

func (d *doctor) certificate() {
	if d.cfg.TLSCert == "" {
		return
	}
	const advice = "renew the certificate; the server reads the new file without a restart"
	pair, err := tls.LoadX509KeyPair(d.cfg.TLSCert, d.cfg.TLSKey)
	if err != nil {
		d.fail("certificate", "correct tls_cert and tls_key", "%v", err)
		return
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		d.fail("certificate", advice, "%v", err)
		return
	}
	if u, err := url.Parse(d.cfg.BaseURL); err == nil && u.Scheme == "https" {
		if err := leaf.VerifyHostname(u.Hostname()); err != nil {
			d.fail("certificate", "use a certificate for the host of base_url", "%v", err)
			return
		}
	}
	left := leaf.NotAfter.Sub(d.cfg.Now())
	switch ends := leaf.NotAfter.UTC().Format(time.RFC3339); {
	case left <= 0:
		d.fail("certificate", advice, "it expired at %s", ends)
	case left < certificateWarns:
		d.warn("certificate", advice, "it expires at %s", ends)
	default:
		d.ok("certificate", "it expires at %s", ends)
	}
}

// blobs reads some random blobs and checks whether they exist and match their
// digests.
func (d *doctor) blobs(ctx context.Context) {
	if d.db == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askStorage)
	defer cancel()
	const advice = "repair the storage: check the setting blobs and its mount or bucket, or restore a back-up"
	storage, err := d.cfg.Storage()
	if err != nil {
		d.fail("blobs", advice, "%v", err)
		return
	}
	blobs, err := sampleBlobs(ctx, registrydb.New(d.db))
	if err != nil {
		d.fail("blobs", advice, "%v", err)
		return
	}
	if err := reachStorage(ctx, storage, blobs); err != nil {
		d.fail("blobs", advice, "the storage is not reachable: %v", err)
		return
	}
	var bad []string
	for _, b := range blobs {
		err := backup.CheckBlob(ctx, storage, b, maxSampled)
		if err != nil && !backup.IsBadBlob(err) {
			d.fail("blobs", advice, "the storage cannot be read: %v", err)
			return
		}
		if err != nil {
			bad = append(bad, err.Error())
		}
	}
	if len(bad) > 0 {
		d.fail("blobs", advice, "of %d blobs that were read, %d are missing or damaged: %s", len(blobs), len(bad),
			strings.Join(bad, "; "))
		return
	}
	rotten, err := registrydb.New(d.db).RottenBlobs(ctx)
	if err != nil {
		d.fail("blobs", advice, "%v", err)
		return
	}
	if rotten > 0 {
		d.warn("blobs", "holdfastd scrub lists them; push their images again, or restore a back-up",
			"%d are missing or damaged in the storage and are not served", rotten)
		return
	}
	d.ok("blobs", "%d random blobs were read and match their digests", len(blobs))
}

// reachStorage returns an error if the storage does not answer in time a question about one of the blobs. A registry
// without blobs needs its storage, too.
func reachStorage(ctx context.Context, storage blob.Storage, blobs []registry.Blob) error {
	ctx, cancel := context.WithTimeout(ctx, reachIn)
	defer cancel()
	if len(blobs) == 0 {
		_, err := storage.Names(ctx, "/blobs")
		return err
	}
	_, err := storage.Size(ctx, blobs[0].Path)
	return err
}

// issuers reports the issuers that the server could not reach in its last check.
func (d *doctor) issuers(ctx context.Context) {
	if d.db == nil {
		return
	}
	iam := iamdb.New(d.db)
	n, unchecked, bad := 0, 0, []string{}
	for issuer := ""; ; n++ {
		next, err := iam.NextIssuer(ctx, issuer)
		if err != nil {
			d.fail("issuers", "check the database", "%v", err)
			return
		}
		if issuer = next; issuer == "" {
			break
		}
		state, err := tokendb.New(d.db).IssuerState(ctx, issuer)
		switch {
		case err != nil:
			d.fail("issuers", "check the database", "%v", err)
			return
		case state.CheckTime.IsZero():
			unchecked++
		case state.Problem != "":
			bad = append(bad, issuer+": "+state.Problem)
		}
	}
	if len(bad) > 0 {
		d.warn("issuers", "ask their operators, or check outbound_allow; workloads of these issuers cannot sign in",
			"%d of %d cannot be reached, for example %s", len(bad), n, strings.Join(bad[:min(len(bad), namedIssuers)], "; "))
		return
	}
	d.ok("issuers", "%d answered the last check of the server, %d were not checked yet", n-unchecked, unchecked)
}

// mail connects to the mail server and signs in. It sends no message.
func (d *doctor) mail(ctx context.Context) {
	if d.cfg.SMTPAddress == "" {
		return
	}
	to, err := d.cfg.MailServer()
	if err == nil {
		err = to.Check(ctx)
	}
	if err != nil {
		d.warn("mail", "check the settings smtp_…; until then invites and links are shown but not sent",
			"%s cannot be used: %v", d.cfg.SMTPAddress, err)
		return
	}
	d.ok("mail", "%s accepts messages", d.cfg.SMTPAddress)
}

// server asks the server that runs with these settings whether it is ready, and whether clients reach it at base_url.
func (d *doctor) server(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askServer)
	defer cancel()
	local := "http://" + d.cfg.Reachable(d.addr)
	if d.cfg.TLSCert != "" {
		local = "https://" + d.cfg.Reachable(d.addr)
	}
	// The certificate has the public name of the server, and not localhost.
	insecure := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // no secret is sent
	status, body, err := ask(ctx, local+"/readyz", insecure)
	switch {
	case err != nil:
		d.warn("server", "start it, or run doctor on its machine", "no server answers at %s", local)
		return
	case status != http.StatusOK:
		d.fail("server", "read its log", "it is not ready: %s", strings.TrimSpace(string(body)))
		return
	}
	var about struct {
		Issuer string `json:"issuer"`
	}
	_, body, err = ask(ctx, local+"/.well-known/openid-configuration", insecure)
	if err := errors.Join(err, json.Unmarshal(body, &about)); err != nil || about.Issuer != d.cfg.AuthURL {
		d.fail("server", "stop the other server, or correct listen and auth_url",
			"the server at %s has other settings: its auth_url is %q, not %q", local, about.Issuer, d.cfg.AuthURL)
		return
	}
	d.ok("server", "ready at %s", local)
	status, _, err = ask(ctx, d.cfg.BaseURL+"/readyz", nil)
	const advice = "check the DNS name, the proxy and the certificate of base_url: clients use that address"
	switch unknown := (x509.UnknownAuthorityError{}); {
	case errors.As(err, &unknown):
		d.warn("base_url", advice, "this machine does not trust the certificate of %s", d.cfg.BaseURL)
	case err != nil:
		d.fail("base_url", advice, "%s cannot be reached: %v", d.cfg.BaseURL, err)
	case status != http.StatusOK:
		d.fail("base_url", advice, "%s/readyz answers with status %d", d.cfg.BaseURL, status)
	default:
		d.ok("base_url", "%s reaches a server that is ready", d.cfg.BaseURL)
	}
}

// ask sends a GET request and returns the status and the first bytes of the answer.
func ask(ctx context.Context, address string, config *tls.Config) (status int, body []byte, _ error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode, body, err
}

// sampleBlobs returns blobs that follow a random digest, or the first blobs if too
// few follow it.
func sampleBlobs(ctx context.Context, from *registrydb.Store) ([]registry.Blob, error) {
	var start [8]byte
	rand.Read(start[:]) // never fails
	blobs, err := from.BlobsAfter(ctx, "sha256:"+hex.EncodeToString(start[:]), sampledBlobs)
	if err != nil || len(blobs) == sampledBlobs {
		return blobs, err
	}
	return from.BlobsAfter(ctx, "", sampledBlobs)
}
