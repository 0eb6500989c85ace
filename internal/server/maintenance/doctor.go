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
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// What doctor finds worth a warning, or worse.
const (
	skewWarns, skewFails  = time.Second, 10 * time.Second
	diskWarns, diskFails  = 1 << 30, 128 << 20 // bytes free
	certificateWarns      = 14 * 24 * time.Hour
	replicaGone           = 10 * time.Second // without a heartbeat
	sampledBlobs          = 20
	maxSampled            = 64 << 20 // bytes of a blob that is read through
	namedIssuers          = 5
	askServer, askStorage = 5 * time.Second, time.Minute
)

// A diagnosis is the result of one check.
type diagnosis struct {
	Check  string `json:"check"`
	State  string `json:"state"` // ok, warning or failure
	Says   string `json:"says"`
	Advice string `json:"advice,omitempty"` // what to do, unless it is ok
}

// The states of diagnoses.
const (
	isOK      = "ok"
	isWarning = "warning"
	isFailure = "failure"
)

// ErrWarnings is the result of a doctor that found something to look at, and nothing
// that keeps the server from working.
var ErrWarnings = errors.New("there are warnings")

// A doctor examines an installation. It changes nothing, and needs no server.
type doctor struct {
	cfg config.Config
	at  net.Addr  // where the server listens
	db  *store.DB // nil if it cannot be opened
	all []diagnosis
}

func (d *doctor) ok(check, format string, args ...any) {
	d.all = append(d.all, diagnosis{Check: check, State: isOK, Says: fmt.Sprintf(format, args...)})
}

func (d *doctor) warn(check, advice, format string, args ...any) {
	d.all = append(d.all, diagnosis{check, isWarning, fmt.Sprintf(format, args...), advice})
}

func (d *doctor) fail(check, advice, format string, args ...any) {
	d.all = append(d.all, diagnosis{check, isFailure, fmt.Sprintf(format, args...), advice})
}

// Doctor examines the installation and writes what it finds. It returns
// ErrWarnings, or an error if something has failed.
func Doctor(ctx context.Context, cfg config.Config, args []string, out io.Writer) error {
	asJSON := slices.Equal(args, []string{"json"})
	if len(args) > 0 && !asJSON {
		return fault.Field("arguments", "there are none but --json")
	}
	d := &doctor{cfg: cfg, at: &net.TCPAddr{}}
	if at, err := net.ResolveTCPAddr("tcp", cfg.Listen); err == nil {
		d.at = at // otherwise the settings tell
	}
	d.cfg = cfg.At(d.at)
	d.settings()
	d.database(ctx)
	d.key(ctx)
	d.disk()
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
	failed := slices.ContainsFunc(d.all, func(f diagnosis) bool { return f.State == isFailure })
	warned := slices.ContainsFunc(d.all, func(f diagnosis) bool { return f.State == isWarning })
	switch {
	case failed:
		return errors.New("the installation does not work as it is")
	case warned:
		return ErrWarnings
	}
	return nil
}

func (d *doctor) write(out io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(d.all)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range d.all {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.State, f.Check, f.Says)
		if f.Advice != "" {
			fmt.Fprintf(w, "\t\t→ %s\n", f.Advice)
		}
	}
	return w.Flush()
}

func (d *doctor) settings() {
	if err := d.cfg.Check(); err != nil {
		d.fail("settings", "correct them: see holdfastd --help", "%v", err)
		return
	}
	d.ok("settings", "base_url is %s", d.cfg.BaseURL)
}

func (d *doctor) database(ctx context.Context) {
	db, err := store.OpenToRead(ctx, d.cfg.Database)
	if errors.Is(err, os.ErrNotExist) {
		d.warn("database", "nothing, if this is a new installation: the server makes it", "there is none yet")
		return
	}
	if err != nil {
		d.fail("database", "check the setting database, and that its server runs and lets this machine in", "%s",
			fault.Explain(err))
		return
	}
	v, err := db.Inspect(ctx)
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
		d.fail("clock", synchronize, "the database's is %s from ours", v.Skew)
	case skew > skewWarns:
		d.warn("clock", synchronize, "the database's is %s from ours", v.Skew)
	default:
		d.ok("clock", "the database's is %s from ours", v.Skew)
	}
	d.replicas(v.Replicas)
}

func (d *doctor) schema(has, needs int64) {
	knows, err := store.KnownSchema()
	switch {
	case err != nil:
		d.fail("schema", "install the program again", "%v", err)
	case needs > knows:
		d.fail("schema", "start the version that made it, or a later one",
			"it is %d, and this program knows no more than %d", has, knows)
	case has > knows:
		d.ok("schema", "%d, of a later version, which this program can serve", has)
	case has < knows:
		d.warn("schema", "the server migrates it at its next start; back up first", "it is %d, and this program has %d",
			has, knows)
	default:
		d.ok("schema", "%d", has)
	}
}

func (d *doctor) replicas(all []store.ReplicaState) {
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
		d.warn("replicas", "look again in a few seconds; then look at the log and the load of these replicas",
			"%d run; behind the others are %s", live, strings.Join(behind, ", "))
		return
	}
	d.ok("replicas", "%d run", live)
}

func (d *doctor) key(ctx context.Context) {
	key, err := installation.ExistingKey(d.cfg)
	if err != nil {
		if d.db == nil {
			d.warn("key", "nothing, if this is a new installation: the server makes it", "there is none yet")
			return
		}
		d.fail("key", "bring back the key of this installation: without it nothing sealed can be read", "%s",
			fault.Explain(err))
		return
	}
	if d.db != nil {
		if err := installation.CheckSecrets(ctx, d.db, key); err != nil {
			d.fail("key", "bring back the key of this installation: this is another", "%v", err)
			return
		}
	}
	d.ok("key", "its fingerprint is %s", backup.Fingerprint(key))
}

func (d *doctor) disk() {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(d.cfg.DataDir, &fs); err != nil {
		d.warn("disk", "make the data folder, or correct data_dir", "%s: %v", d.cfg.DataDir, err)
		return
	}
	free := int64(fs.Bavail) * int64(fs.Bsize) //nolint:unconvert // other systems have other types
	const advice = "make room where data_dir is: a full disk refuses every write"
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
		d.warn("data folder", "chmod 700 "+filepath.Clean(d.cfg.DataDir), "others on this machine may open it (%s)",
			info.Mode().Perm())
	}
}

func (d *doctor) certificate() {
	if d.cfg.TLSCert == "" {
		return
	}
	const advice = "renew it; the server reads it again by itself"
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
	left := leaf.NotAfter.Sub(d.cfg.Now())
	switch ends := leaf.NotAfter.UTC().Format(time.RFC3339); {
	case left <= 0:
		d.fail("certificate", advice, "it has ended at %s", ends)
	case left < certificateWarns:
		d.warn("certificate", advice, "it ends at %s", ends)
	default:
		d.ok("certificate", "it ends at %s", ends)
	}
}

// blobs looks at some blobs, at random: whether they are there, and are what their
// digests say.
func (d *doctor) blobs(ctx context.Context) {
	if d.db == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askStorage)
	defer cancel()
	const advice = "bring the storage back to what it was: check the setting blobs, its mount or bucket, or restore a back-up"
	storage, err := d.cfg.Storage()
	if err != nil {
		d.fail("blobs", advice, "%v", err)
		return
	}
	all, err := sampleBlobs(ctx, registrydb.New(d.db))
	if err == nil && len(all) == 0 { // there may be none, but the storage must be there
		_, err = storage.Names(ctx, "/blobs")
	}
	if err != nil {
		d.fail("blobs", advice, "%v", err)
		return
	}
	var bad []string
	for _, b := range all {
		if err := backup.CheckBlob(ctx, storage, b, maxSampled); err != nil {
			bad = append(bad, err.Error())
		}
	}
	if len(bad) > 0 {
		d.fail("blobs", advice, "of %d that were read, %d are lost: %s", len(all), len(bad), strings.Join(bad, "; "))
		return
	}
	rotten, err := registrydb.New(d.db).RottenBlobs(ctx)
	if err != nil {
		d.fail("blobs", advice, "%v", err)
		return
	}
	if rotten > 0 {
		d.warn("blobs", "holdfastd scrub names them: push the images again that have them, or restore a back-up",
			"%d are missing or wrong in the storage, and are not served", rotten)
		return
	}
	d.ok("blobs", "%d were read, at random, and are what their digests say", len(all))
}

// issuers tells which issuers the server could not reach when it last looked.
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
		state, err := iam.IssuerState(ctx, issuer)
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
		d.warn("issuers", "ask their owners, or see outbound_allow; workloads of these issuers cannot sign in",
			"%d of %d cannot be reached, among them %s", len(bad), n, strings.Join(bad[:min(len(bad), namedIssuers)], "; "))
		return
	}
	d.ok("issuers", "%d answered when the server last asked, %d were not asked yet", n-unchecked, unchecked)
}

// mail checks the mail server: it connects and signs in, and sends nothing.
func (d *doctor) mail(ctx context.Context) {
	if d.cfg.SMTPAddress == "" {
		return
	}
	to, err := d.cfg.MailServer()
	if err == nil {
		err = to.Check(ctx)
	}
	if err != nil {
		d.warn("mail", "check the settings smtp_…; invites and links are not sent until then, but shown as ever",
			"%s cannot be used: %v", d.cfg.SMTPAddress, err)
		return
	}
	d.ok("mail", "%s takes messages", d.cfg.SMTPAddress)
}

// server asks the server that runs with these settings whether it is ready.
func (d *doctor) server(ctx context.Context) {
	scheme := "http://"
	if d.cfg.TLSCert != "" {
		scheme = "https://"
	}
	ctx, cancel := context.WithTimeout(ctx, askServer)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+d.cfg.Reachable(d.at)+"/readyz", nil)
	if err != nil {
		d.fail("server", "correct listen", "%v", err)
		return
	}
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it is this machine, and the name is another
	}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	if err != nil {
		d.warn("server", "start it, or ask the machine on which it runs", "none answers at %s", r.URL.Host)
		return
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // what could be read will do
	if resp.StatusCode != http.StatusOK {
		d.fail("server", "look at its log", "it is not ready: %s", strings.TrimSpace(string(said)))
		return
	}
	d.ok("server", "ready at %s", r.URL.Host)
}

// sampleBlobs returns some blobs that follow a random digest, or the first ones if
// there are few.
func sampleBlobs(ctx context.Context, from *registrydb.Store) ([]registry.Blob, error) {
	var start [8]byte
	rand.Read(start[:]) // never fails
	all, err := from.BlobsAfter(ctx, "sha256:"+hex.EncodeToString(start[:]), sampledBlobs)
	if err != nil || len(all) == sampledBlobs {
		return all, err
	}
	return from.BlobsAfter(ctx, "", sampledBlobs)
}
