package maintenance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/server/config"
	"github.com/holdfast-dev/holdfast/internal/server/installation"
	"github.com/holdfast-dev/holdfast/internal/store/health"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/ops/backup"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// ResetKeys removes the secrets that were sealed with a lost encryption key, and
// writes a list of them. It returns fault.FailedPrecondition if a server uses the
// database, because that server has the key.
func ResetKeys(ctx context.Context, cfg config.Config, args []string, out io.Writer) error {
	if !slices.Equal(args, []string{installation.LostKeyFlag}) {
		return fault.Field("arguments", "keys reset voids all tokens; if the encryption key is lost, add --%s",
			installation.LostKeyFlag)
	}
	if err := checkStopped(ctx, cfg); err != nil {
		return err
	}
	log := cfg.Logger()
	db, err := store.Open(ctx, cfg.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	db.Log = log
	key, err := installation.Key(cfg, log) // creates a key if there is none
	if err != nil {
		return err
	}
	ctx = resource.WithActor(ctx, resource.Actor{Remote: "operator"})
	lost, err := admission.New(db).ForgetSealed(ctx, func(purpose string, sealed []byte) bool {
		_, err := key.Open(purpose, sealed)
		return err == nil
	})
	if err != nil {
		return err
	}
	if lost.IsZero() {
		return fault.New(fault.FailedPrecondition,
			"nothing was reset: the encryption key %s opens all secrets of this database", backup.Fingerprint(key))
	}
	// The server creates these secrets again at its next start.
	for _, name := range []string{installation.DevIssuerKey, installation.DevPassword} {
		if err := db.SetSetting(ctx, name, nil); err != nil {
			return err
		}
	}
	log.WarnContext(ctx, "removed the secrets of a lost encryption key", "signing_keys", lost.SigningKeys,
		"providers", len(lost.Providers), "upstreams", len(lost.Upstreams), "replications", len(lost.Replications),
		"accounts", len(lost.Accounts), "recovery_codes", lost.RecoveryCodes)
	return writeLoss(out, lost, backup.Fingerprint(key))
}

// checkStopped returns fault.FailedPrecondition if there is no database, or if a
// server uses it.
func checkStopped(ctx context.Context, cfg config.Config) error {
	db, err := store.OpenToRead(ctx, cfg.Database)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.FailedPrecondition, "there is no database at %s", cfg.Database)
	}
	if err != nil {
		return err
	}
	defer db.Close()
	v, err := health.Inspect(ctx, db)
	// SQLite locks its file, so the caller cannot open the database while a server runs.
	// PostgreSQL needs the check below.
	if err != nil || !db.Replicated() {
		return err
	}
	for _, r := range v.Replicas {
		if r.Age < replicaGone {
			return fault.New(fault.FailedPrecondition,
				"a server uses this database and has the encryption key: copy the key from that server, or stop the server")
		}
	}
	return nil
}

func writeLoss(out io.Writer, lost admission.Loss, fingerprint string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "The installation now uses the encryption key %s. These secrets of the old key are lost:\n",
		fingerprint)
	if lost.SigningKeys > 0 {
		fmt.Fprintf(&b, "- %d signing keys: every issued token is void. Sessions continue and renew their tokens.\n",
			lost.SigningKeys)
	}
	if lost.RecoveryCodes > 0 {
		fmt.Fprintf(&b, "- %d recovery codes: people create new codes on /account.\n", lost.RecoveryCodes)
	}
	if len(lost.Providers) > 0 {
		fmt.Fprintf(&b, "- the client secrets of %d identity providers, which cannot be used until you set the secret "+
			"again (holdfast iam identity-providers update UID --client-secret-file FILE):\n", len(lost.Providers))
		for _, p := range lost.Providers {
			fmt.Fprintf(&b, "    %s  %s\n", p.UID, p.Name)
		}
	}
	if len(lost.Upstreams) > 0 {
		fmt.Fprintf(&b, "- the credentials of %d upstreams, which are used without credentials until you set them again "+
			"(holdfast registry upstreams update UID --credentials FILE):\n", len(lost.Upstreams))
		for _, u := range lost.Upstreams {
			fmt.Fprintf(&b, "    %s  %s\n", u.UID, u.Name)
		}
	}
	if len(lost.Replications) > 0 {
		fmt.Fprintf(&b, "- the credentials of %d replications, which copy without credentials until you set them again "+
			"(holdfast registry replications update UID --credentials FILE):\n", len(lost.Replications))
		for _, r := range lost.Replications {
			fmt.Fprintf(&b, "    %s  %s\n", r.UID, r.Name)
		}
	}
	if len(lost.Accounts) > 0 {
		fmt.Fprintf(&b, "- the authenticator apps of %d accounts, and their passwords, so that a password alone does not "+
			"sign in. Passkeys still work; without one, the person needs a one-time link (holdfastd owners recover "+
			"for an owner, holdfast iam accounts link for other people):\n", len(lost.Accounts))
		for _, a := range lost.Accounts {
			fmt.Fprintf(&b, "    %s  %s\n", a.UID, a.Email)
		}
	}
	b.WriteString("Unfinished sign-ins and page tokens are void. Earlier back-ups need the old key.\n")
	_, err := io.WriteString(out, b.String())
	return err
}
