package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// addRequest adds a request by a new workload for a role on a group, and the rule that allows the
// request.
func addRequest(t *testing.T, s *storetest.Store, group, role resource.UID) resource.AccessRequest {
	t.Helper()
	rule := resource.AccessRule{UID: group.NewChild(), Role: role, MaxDuration: time.Hour, Approvers: 1,
		CreateTime: epoch, UpdateTime: epoch}
	must(t, s.InsertAccessRule(t.Context(), rule))
	r := resource.AccessRequest{
		UID: group.NewChild(), Rule: rule.UID, Role: role, Identity: addIdentity(t, s, group.Root(),
			"asks").UID, Duration: time.Hour,
		State: resource.AccessPending, Approvers: 1, CreateTime: s.Time(), UpdateTime: s.Time(),
	}
	must(t, s.InsertAccessRequest(t.Context(), r))
	return r
}

func anybody(resource.AccessRequest) error { return nil }

// TestAccessRequestRaces approves a request while the rule or role that it needs is removed, and
// checks that the result is consistent.
func TestAccessRequestRaces(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org, _ := addOrganization(t, s, "org", alice)
		role := addRole(t, s, org.UID, "reader").UID
		for i := range 10 {
			folder := addGroup(t, s, org.UID, fmt.Sprint("folder ", i))
			r := addRequest(t, s, folder.UID, role)
			approve, remove := atOnce(
				func() error { _, err := s.ApproveAccess(t.Context(), r.UID, alice, anybody); return err },
				func() error { return s.DeleteGroup(t.Context(), folder.UID, "") })
			if err := oneOf(fault.NotFound, fault.FailedPrecondition)(approve, remove); err != nil {
				t.Errorf("approve and delete the group: %v", err)
			}
			got, err := s.AccessRequest(t.Context(), r.UID)
			if must(t, err); approve == nil && got.State != resource.AccessGranted ||
				remove == nil && got.State != resource.AccessClosed {
				t.Errorf("approved: %v, deleted: %v, and it is %d", approve, remove, got.State)
			}
			grants, err := s.GrantsOf(t.Context(), r.Identity)
			if must(t, err); (approve == nil) != (len(grants) == 1) {
				t.Errorf("approved: %v, with %d grants", approve, len(grants))
			}

			second := addRequest(t, s, org.UID, role)
			approve, back := atOnce(
				func() error { _, err := s.ApproveAccess(t.Context(), second.UID, alice, anybody); return err },
				func() error { _, err := s.HandBackAccess(t.Context(), second.UID, second.Identity); return err })
			grants, err = s.GrantsOf(t.Context(), second.Identity)
			if must(t, err); back != nil || approve != nil && !errors.Is(approve, fault.FailedPrecondition) || len(grants) != 0 {
				t.Errorf("approve and hand back: %v, %v, with %d grants", approve, back, len(grants))
			}
		}
		wantExact(t, s)
		must(t, s.DeleteBinding(t.Context(), addBinding(t, s, org.UID, bob, role).UID))
	})
}

// TestApproverIsHeld checks that the approver's binding cannot be deleted before the approval is
// committed.
func TestApproverIsHeld(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org, _ := addOrganization(t, s, "org", alice)
		role := addRole(t, s, org.UID, "reader").UID
		b := addBinding(t, s, org.UID, bob, role)
		r := addRequest(t, s, org.UID, role)
		removed := make(chan error, 1)
		_, err := s.ApproveAccess(t.Context(), r.UID, bob, func(resource.AccessRequest) error {
			if s.Replicated() { // not on SQLite, because it has only one writer
				go func() { removed <- s.DeleteBinding(t.Context(), b.UID) }()
				select {
				case err := <-removed:
					t.Errorf("the approver's binding was removed meanwhile: %v", err)
					removed <- err
				case <-time.After(300 * time.Millisecond):
				}
			}
			return nil
		})
		must(t, err)
		if s.Replicated() {
			must(t, <-removed)
		}
	})
}
