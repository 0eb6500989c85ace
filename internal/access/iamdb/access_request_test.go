package iamdb_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestAccessRequestRaces approves a request while the rule or role that it needs is removed, and
// checks that the result is consistent.
func TestAccessRequestRaces(t *testing.T) {
	t.Parallel()
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
		role := iamtest.AddRole(t, s.IAMStore, org.UID, "reader").UID
		for i := range 10 {
			folder := iamtest.AddGroup(t, s.IAMStore, org.UID, fmt.Sprint("folder ", i))
			r := iamtest.AddRequest(t, s.IAMStore, folder.UID, role)
			approve, remove := dbtest.AtOnce(
				func() error {
					_, err := s.ApproveAccess(t.Context(), r.UID, iamtest.Alice, iamtest.Anybody)
					return err
				},
				func() error { return s.DeleteGroup(t.Context(), folder.UID, "") })
			if err := dbtest.OneOf(fault.NotFound, fault.FailedPrecondition)(approve, remove); err != nil {
				t.Errorf("approve and delete the group: %v", err)
			}
			got, err := s.AccessRequest(t.Context(), r.UID)
			if testkit.Must(t, err); approve == nil && got.State != resource.AccessGranted ||
				remove == nil && got.State != resource.AccessClosed {
				t.Errorf("approved: %v, deleted: %v, and it is %d", approve, remove, got.State)
			}
			grants, err := s.GrantsOf(t.Context(), r.Identity)
			if testkit.Must(t, err); (approve == nil) != (len(grants) == 1) {
				t.Errorf("approved: %v, with %d grants", approve, len(grants))
			}

			second := iamtest.AddRequest(t, s.IAMStore, org.UID, role)
			approve, back := dbtest.AtOnce(
				func() error {
					_, err := s.ApproveAccess(t.Context(), second.UID, iamtest.Alice, iamtest.Anybody)
					return err
				},
				func() error { _, err := s.HandBackAccess(t.Context(), second.UID, second.Identity); return err })
			grants, err = s.GrantsOf(t.Context(), second.Identity)
			if testkit.Must(t, err); back != nil || approve != nil && !errors.Is(approve,
				fault.FailedPrecondition) || len(grants) != 0 {
				t.Errorf("approve and hand back: %v, %v, with %d grants", approve, back, len(grants))
			}
		}
		dbtest.WantExact(t, s.DB)
		testkit.Must(t, s.DeleteBinding(t.Context(), iamtest.AddBinding(t, s.IAMStore, org.UID, iamtest.Bob, role).UID))
	})
}

// TestApproverIsHeld checks that the approver's binding cannot be deleted before the approval is
// committed.
func TestApproverIsHeld(t *testing.T) {
	t.Parallel()
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
		role := iamtest.AddRole(t, s.IAMStore, org.UID, "reader").UID
		b := iamtest.AddBinding(t, s.IAMStore, org.UID, iamtest.Bob, role)
		r := iamtest.AddRequest(t, s.IAMStore, org.UID, role)
		removed := make(chan error, 1)
		_, err := s.ApproveAccess(t.Context(), r.UID, iamtest.Bob, func(resource.AccessRequest) error {
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
		testkit.Must(t, err)
		if s.Replicated() {
			testkit.Must(t, <-removed)
		}
	})
}
