package e2e_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// streamTests has the test of each method with a stream, which ends when its caller loses access.
var streamTests = map[string]string{
	"ImportAdvisories": "TestAttackStreamsInFlight/import",
	"ExportAdvisories": "TestAttackStreamsInFlight/export",
	"WatchEntries":     "TestWatchEnds",
}

// TestEveryStreamInFlight fails if there is a method with a stream that no test interrupts.
func TestEveryStreamInFlight(t *testing.T) {
	eachMethod(func(m protoreflect.MethodDescriptor) {
		if (m.IsStreamingClient() || m.IsStreamingServer()) && streamTests[string(m.Name())] == "" {
			t.Errorf("no test revokes the access of the caller of %s while its stream is open", m.FullName())
		}
	})
}

// isLost reports whether a call has ended because its caller has lost access.
func isLost(err error) bool {
	return status.Code(err) == codes.Unauthenticated || status.Code(err) == codes.PermissionDenied
}

// TestAttackStreamsInFlight deletes the identity of the caller of a stream. An import accepts no further document, and
// an export returns no further part.
func TestAttackStreamsInFlight(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		folder := w.child(t, string(w.Organization), "folder")
		t.Run("import", func(t *testing.T) {
			robot := w.robot(t, string(w.Organization), "importer")
			w.bind(t, folder, robot, ownerRole)
			w.importInFlight(t, folder, robot)
		})
		t.Run("export", func(t *testing.T) {
			robot := w.robot(t, string(w.Organization), "exporter")
			w.bind(t, folder, robot, ownerRole)
			w.exportInFlight(t, folder, robot)
		})
	})
}

// advisoriesIn returns the number of advisories of a group.
func (w *world) advisoriesIn(t *testing.T, group string) int64 {
	t.Helper()
	list := must[*vulnpb.ListAdvisoriesResponse](t, w.overGRPC, w.Token, &vulnpb.ListAdvisoriesRequest{
		Uidp: &commonpb.UIDPFilter{ChildrenOf: group},
	})
	return list.GetTotalCount()
}

func (w *world) importInFlight(t *testing.T, folder, robot string) {
	bearer := w.mint(t, resource.UID(robot), token.Claims{})
	stream, err := advisoriespb.NewAdvisoryWritingServiceClient(w.conn).ImportAdvisories(bearing(t, bearer))
	if err != nil {
		t.Fatal(err)
	}
	send := func(parts ...any) {
		for _, p := range parts {
			_ = stream.Send(part(p)) // Recv returns the reason if it fails
		}
	}
	// A batch of an import has 1,536 records, so the first archive is written before the import ends.
	first, second := osvZip(t, 0, 2000), osvZip(t, 2000, 6000)
	send(folder, doc("first.zip", len(first)), first)
	if _, err := stream.Recv(); err != nil { // the progress of the first batch
		t.Fatal(err)
	}
	w.delete(t, "/iam/v2beta1/identities/"+robot)
	before := w.advisoriesIn(t, folder)
	send(doc("second.zip", len(second)), second)
	_ = stream.CloseSend()
	for err == nil {
		_, err = stream.Recv()
	}
	if !isLost(err) {
		t.Errorf("the import ended with %v", err)
	}
	if after := w.advisoriesIn(t, folder); after != before || before == 0 {
		t.Errorf("there were %d advisories when the identity was deleted, and there are %d", before, after)
	}
}

func (w *world) exportInFlight(t *testing.T, folder, robot string) {
	long := strings.Repeat("A long description. ", 1000)
	var parts []any
	parts = append(parts, folder)
	for i := range 150 { // more than the buffers of the connection hold
		text := strings.Replace(osv(10_000+i), `"summary":`, `"details":"`+long+`","summary":`, 1)
		parts = append(parts, doc(fmt.Sprintf("%d.json", i), len(text)), []byte(text))
	}
	if _, st := w.takeIn(t, w.Token, parts...); st != nil {
		t.Fatal(st)
	}
	export := func(bearer string, afterFirst func()) (size int, err error) {
		client := advisoriespb.NewAdvisoryReadingServiceClient(w.conn)
		stream, err := client.ExportAdvisories(bearing(t, bearer), &advisoriespb.ExportAdvisoriesRequest{
			Filter: &vulnpb.ListAdvisoriesRequest{Uidp: &commonpb.UIDPFilter{ChildrenOf: folder}}, Format: "osv",
		})
		for n := 0; err == nil; n++ {
			var m *advisoriespb.ExportAdvisoriesResponse
			m, err = stream.Recv()
			if size += len(m.GetData()); n == 0 {
				afterFirst()
			}
		}
		return size, err
	}
	bearer := w.mint(t, resource.UID(robot), token.Claims{})
	if _, err := export(bearer, func() {}); !errors.Is(err, io.EOF) {
		t.Errorf("without a revocation, the export ended with %v", err)
	}
	size, err := export(bearer, func() { w.delete(t, "/iam/v2beta1/identities/"+robot) })
	if !isLost(err) {
		t.Errorf("after %d bytes, the export ended with %v", size, err)
	}
}

// TestAttackHalfSentOverGRPC: a call over gRPC whose message arrives after the caller's identity was deleted changes
// nothing.
func TestAttackHalfSentOverGRPC(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		folder := w.child(t, string(w.Organization), "folder")
		robot := w.robot(t, string(w.Organization), "robot")
		w.bind(t, folder, robot, ownerRole)
		bearer := w.mint(t, resource.UID(robot), token.Claims{})
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetUnencryptedHTTP2(true)
		defer transport.CloseIdleConnections()
		message, err := proto.Marshal(&iampb.CreateRoleBindingRequest{
			Parent: folder, RoleBinding: &iampb.RoleBinding{IdentityUid: string(bob), RoleUid: ownerRole},
		})
		if err != nil {
			t.Fatal(err)
		}
		frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
		call := func(between func()) string {
			body, out := io.Pipe()
			name := w.BaseURL + iampb.RoleBindingsService_CreateRoleBinding_FullMethodName
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, name, body)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{
				"Authorization": {"Bearer " + bearer}, "Content-Type": {"application/grpc"}, "Te": {"trailers"},
			}
			go func() {
				_, _ = out.Write(frame[:9]) // fails if the server has answered
				between()
				_, _ = out.Write(frame[9:])
				_ = out.Close()
			}()
			resp, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.Trailer.Get("Grpc-Status") + resp.Header.Get("Grpc-Status")
		}
		if code := call(func() {}); code != "0" {
			t.Errorf("without a revocation: gRPC status %s", code)
		}
		before := w.bindingsOf(t, folder)
		code := call(func() { w.delete(t, "/iam/v2beta1/identities/"+robot) })
		if code != fmt.Sprint(int(codes.Unauthenticated)) && code != fmt.Sprint(int(codes.PermissionDenied)) {
			t.Errorf("after the identity was deleted: gRPC status %s", code)
		}
		if n := w.bindingsOf(t, folder); n >= before { // the binding of the deleted identity is gone, too
			t.Errorf("there are %d bindings, and before the deletion there were %d", n, before)
		}
	})
}

// TestAttackOtherReplicaInFlight: one replica has authorized a write when another replica deletes the caller's binding.
func TestAttackOtherReplicaInFlight(t *testing.T) {
	t.Parallel()
	url, i := storetest.Postgres(t), &interrupter{}
	writing := serve(t, url, server.Config{BeforeWrite: i.beforeWrite}, nil)
	revoking := serve(t, url, server.Config{EncryptionKey: writing.config.EncryptionKey}, nil)
	folder := writing.child(t, string(writing.Organization), "folder")
	for name, revoked := range map[string]bool{"with a revocation": true, "without": false} {
		robot := writing.robot(t, string(writing.Organization), "robot"+rand8())
		binding := writing.bind(t, folder, robot, ownerRole)
		bearer := writing.mint(t, resource.UID(robot), token.Claims{})
		friend := resource.UserUID("https://people.example", name) // another one each time: a binding is unique
		body := `{"identity_uid":"` + string(friend) + `","role_uid":"` + ownerRole + `"}`
		var r reply
		revoke := func() {
			if revoked {
				revoking.delete(t, "/iam/v2beta1/roleBindings/"+binding)
			}
		}
		if !i.interrupt(resource.UID(robot), 1, revoke, func() {
			r = writing.send(t, bearer, "POST", "/iam/v2beta1/roleBindings/"+folder, body)
		}) {
			t.Errorf("%s: there was no write", name)
		}
		if want := map[bool]int{true: http.StatusForbidden, false: http.StatusOK}[revoked]; r.status != want {
			t.Errorf("%s: HTTP status %d, want %d", name, r.status, want)
		}
	}
}
