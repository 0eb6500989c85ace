package iam_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestAGrantIsRepeated: if a replica crashed between the commit of a binding and its answer, then the repeated call
// returns fault.AlreadyExists, but only when the binding has effect on every replica.
func TestAGrantIsRepeated(t *testing.T) {
	t.Parallel()
	url := storetest.Postgres(t)
	dying, here, there := storetest.Open(t, url), storetest.Open(t, url), storetest.Open(t, url)
	w := newWorld(t, here, iam.Config{})
	other, err := authz.Load(t.Context(), there.DB, slog.New(slog.DiscardHandler)) // nothing calls its Run method
	must(t, err)
	i, err := w.CreateIdentity(w.owner, w.acme.UID, person("ann", "ann"))
	must(t, err)
	ann := i.UID
	asAnn := w.as(ann)
	if err := other.Require(asAnn, resource.GroupsList, w.acme.UID); !errors.Is(err, fault.PermissionDenied) {
		t.Fatalf("before: %v", err)
	}
	grant := resource.RoleBinding{UID: w.acme.UID.NewChild(), Identity: ann, Role: resource.ManagedRoleUID("viewer"),
		CreateTime: time.Now().UTC()}
	ctx, die := context.WithCancel(t.Context())
	defer die()
	var granted sync.WaitGroup
	granted.Go(func() { _, _ = dying.InsertBinding(ctx, grant) })
	testkit.Until(t, func() bool {
		return dbtest.CountRows(t, here.DB, "role_bindings", "uid = '"+string(grant.UID)+"'") == 1
	})
	die()
	granted.Wait()
	_, err = w.CreateBinding(w.owner, w.acme.UID, resource.RoleBinding{Identity: ann, Role: grant.Role})
	if !errors.Is(err, fault.AlreadyExists) {
		t.Fatalf("repeated: %v", err)
	}
	if err := other.Require(asAnn, resource.GroupsList, w.acme.UID); err != nil {
		t.Errorf("another replica: %v", err)
	}
}
