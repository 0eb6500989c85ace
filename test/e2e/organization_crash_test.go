package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	organizationpb "github.com/holdfast-dev/holdfast/gen/organization/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// appliedGroups is the number of groups that TestApplyCrash creates in each round.
const appliedGroups = 1000

// TestApplyCrash kills the server while it applies a file. Afterwards all groups of the file exist or none of them, and
// an acknowledged file is complete.
func TestApplyCrash(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		env := []string{"HOLDFAST_DATA_DIR=" + t.TempDir(), "HOLDFAST_DATABASE=" + url}
		p := procStart(t, env...)
		parent := string(p.dev.Organization)
		start := time.Now()
		if status := procApply(t, p, parent, procRevision(t, p, parent), "first"); status != http.StatusOK {
			t.Fatalf("the first file: %d", status)
		}
		took := time.Since(start) // without an interruption
		for round := range 3 {
			name, revision := fmt.Sprintf("round-%d", round), procRevision(t, p, parent)
			pause := time.Duration(rand.Int64N(int64(took)))
			killed := make(chan struct{})
			time.AfterFunc(pause, func() { defer close(killed); _ = p.cmd.Process.Kill() })
			status := procApply(t, p, parent, revision, name)
			<-killed
			<-p.ended
			p.killed = true
			p = procStart(t, env...)
			found := procGroups(t, p, parent, name)
			t.Logf("killed after %s of %s; status %d; %d groups", pause, took, status, found)
			if found != 0 && found != appliedGroups || status == http.StatusOK && found == 0 {
				t.Fatalf("round %d: %d of %d groups exist after status %d", round, found, appliedGroups, status)
			}
		}
		p.stop()
		procNoDrift(t, storetest.Open(t, url))
	})
}

// procRevision returns the revision of a group.
func procRevision(t *testing.T, p *proc, parent string) string {
	t.Helper()
	path := "/organization/v1/state/" + parent
	return procMust[struct{ Revision string }](t, p.owner(), http.MethodGet, path, nil).Revision
}

// procApply applies a file that creates groups whose names begin with name. It returns the status of the answer, or 0
// if there was none.
func procApply(t *testing.T, p *proc, parent, revision, name string) int {
	t.Helper()
	changes := make([]map[string]any, appliedGroups)
	for i := range changes {
		changes[i] = map[string]any{"id": fmt.Sprint(i), "request": map[string]any{
			"@type":  "type.googleapis.com/holdfast.iam.v2beta1.CreateGroupRequest",
			"parent": parent, "group": map[string]string{"name": fmt.Sprintf("%s-%04d", name, i)},
		}}
	}
	return p.owner().code(t.Context(), http.MethodPost, "/organization/v1/apply/"+parent, map[string]any{
		"revision": revision, "changes": changes,
	})
}

// procGroups returns how many groups in parent have a name that begins with a text and a dash.
func procGroups(t *testing.T, p *proc, parent, text string) (n int) {
	t.Helper()
	type page struct {
		Groups        []struct{ Name string }
		NextPageToken string
	}
	for token := ""; ; {
		got := procMust[page](t, p.owner(), http.MethodGet,
			"/iam/v2beta1/groups?pageSize=1000&uidp.childrenOf="+parent+"&pageToken="+token, nil)
		for _, g := range got.Groups {
			if strings.HasPrefix(g.Name, text+"-") {
				n++
			}
		}
		if token = got.NextPageToken; token == "" {
			return n
		}
	}
}

// TestApplyOnce applies many files with the same revision at the same time. Exactly one is applied, and the others are
// refused as stale.
func TestApplyOnce(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		parent := w.child(t, string(w.Organization), "filed")
		in := applyTo(t, w.overGRPC, w.Token, parent)
		const files = 4
		var wg sync.WaitGroup
		codesSeen, names := make([]codes.Code, files), make([]string, files)
		for i := range files {
			wg.Go(func() {
				own := proto.Clone(in).(*organizationpb.ApplyOrganizationRequest)
				for k := range 20 {
					names[i] = fmt.Sprintf("file-%d", i)
					own.Changes = append(own.Changes, changeList(&iampb.CreateGroupRequest{Parent: parent,
						Group: &iampb.Group{Name: fmt.Sprintf("file-%d-%d", i, k)}})...)
					own.Changes[k].Id = fmt.Sprint(k)
				}
				_, st := w.overGRPC(t, w.Token, own)
				codesSeen[i] = st.Code()
			})
		}
		wg.Wait()
		applied := 0
		for _, c := range codesSeen {
			if c == codes.OK {
				applied++
			} else if c != codes.FailedPrecondition {
				t.Errorf("a file that was not applied: %s", c)
			}
		}
		list := must[*iampb.ListGroupsResponse](t, w.overGRPC, w.Token, &iampb.ListGroupsRequest{
			Uidp: &commonpb.UIDPFilter{ChildrenOf: parent}, PageSize: 100,
		})
		if applied != 1 || len(list.GetGroups()) != 20 {
			t.Errorf("%d files were applied, and %d groups exist", applied, len(list.GetGroups()))
		}
	})
}

// TestApplyKeepsAnOwner checks that a file cannot delete the binding of the last owner, and that a file that replaces
// the owner is applied.
func TestApplyKeepsAnOwner(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		org := string(w.Organization)
		owners := must[*iampb.ListRoleBindingsResponse](t, w.overGRPC, w.Token, &iampb.ListRoleBindingsRequest{
			Uidp: &commonpb.UIDPFilter{ChildrenOf: org}, PageSize: 100,
		})
		var last string
		for _, b := range owners.GetRoleBindings() {
			if b.GetRole().GetUid() == string(resource.OwnerRole) {
				last = b.GetUid()
			}
		}
		remove := &iampb.DeleteRoleBindingRequest{Uid: last}
		in := applyTo(t, w.overGRPC, w.Token, org, remove)
		if _, st := w.overGRPC(t, w.Token, in); st.Code() != codes.FailedPrecondition {
			t.Errorf("a file that deletes the last owner's binding: %v", st)
		}
		heir := string(resource.UserUID("https://people.test", "heir"))
		add := &iampb.CreateRoleBindingRequest{Parent: org, RoleBinding: &iampb.RoleBinding{
			IdentityUid: heir, RoleUid: string(resource.OwnerRole)}}
		if _, st := w.overGRPC(t, w.Token, applyTo(t, w.overGRPC, w.Token, org, add, remove)); st.Code() != codes.OK {
			t.Errorf("a file that replaces the owner: %v", st)
		}
	})
}
