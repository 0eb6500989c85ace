package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	pingpb "github.com/holdfast-dev/holdfast/gen/ping/v2beta1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// otherNames returns all full names of a service. The server lists them through reflection. There is one name for
// each package that contains the service.
func otherNames(t *testing.T, w *world, service string) []string {
	t.Helper()
	var names []string
	for _, name := range w.listServices(t) {
		if strings.HasSuffix(name, "."+service) {
			names = append(names, name)
		}
	}
	return names
}

// reflect sends a reflection request without a token, and returns the response.
func (w *world) reflect(t *testing.T, in *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
	t.Helper()
	stream, err := reflectionpb.NewServerReflectionClient(w.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.CloseSend()
	if err := stream.Send(in); err != nil {
		t.Fatal(err)
	}
	out, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (w *world) listServices(t *testing.T) []string {
	t.Helper()
	var names []string
	list := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
	for _, s := range w.reflect(t, list).GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	return names
}

// TestApiNames calls one method of each service under all names of the service. The answers must be the same.
func TestApiNames(t *testing.T) {
	t.Parallel()
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	for _, in := range []proto.Message{
		&iampb.ListGroupsRequest{}, &iampb.ListIdentitiesRequest{},
		&iampb.ListRolesRequest{}, &iampb.ListRoleBindingsRequest{}, &pingpb.PingRequest{},
		&registrypb.ListReposRequest{}, &registrypb.ListTagsRequest{},
	} {
		m := methodOf(in)
		want, st := w.overGRPC(t, w.Token, in)
		if st != nil {
			t.Fatal(st)
		}
		names := otherNames(t, w, string(m.Parent().Name()))
		_, isPing := in.(*pingpb.PingRequest)
		count := 4
		if isPing {
			count = 6 // this service also exists in version 1
		}
		if len(names) != count {
			t.Errorf("%s has the names %q, want %d names", m.Parent().Name(), names, count)
		}
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				got, st := invoke(t, w.conn, "/"+name+"/"+string(m.Name()), w.Token, in)
				if st != nil || !proto.Equal(got, want) {
					t.Errorf("answers %v %v, want %v", got, st, want)
				}
				if isPing {
					return
				}
				if _, st := invoke(t, w.conn, "/"+name+"/"+string(m.Name()), "", in); st.Code() != codes.Unauthenticated {
					t.Errorf("without a token: %v", st)
				}
				w.describe(t, name, string(m.Name()))
			})
		}
	}
}

// describe fetches the descriptor of a service. It fails the test if the service's package lacks the method or its
// types.
func (w *world) describe(t *testing.T, service, method string) {
	t.Helper()
	out := w.reflect(t, &reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service},
	})
	pkg := service[:strings.LastIndexByte(service, '.')]
	for _, raw := range out.GetFileDescriptorResponse().GetFileDescriptorProto() {
		var file descriptorpb.FileDescriptorProto
		if err := proto.Unmarshal(raw, &file); err != nil {
			t.Fatal(err)
		}
		for _, s := range file.GetService() {
			for _, m := range s.GetMethod() {
				if file.GetPackage() == pkg && m.GetName() == method && strings.HasPrefix(m.GetInputType(), "."+pkg+".") {
					return
				}
			}
		}
	}
	t.Errorf("reflection does not describe %s/%s: %v", service, method, out.GetErrorResponse())
}

// TestApiHealthAndReflection checks that the health and reflection services need no token and ignore an invalid one.
func TestApiHealthAndReflection(t *testing.T) {
	t.Parallel()
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	for _, bearer := range []string{"", "garbage"} {
		out, err := healthpb.NewHealthClient(w.conn).Check(bearing(t, bearer), &healthpb.HealthCheckRequest{})
		if err != nil || out.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health with token %q: %v, %v", bearer, out, err)
		}
	}
	services := w.listServices(t)
	listed, err := healthpb.NewHealthClient(w.conn).List(t.Context(), &healthpb.HealthListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(services, "") {
		got := listed.GetStatuses()[name].GetStatus()
		if !strings.HasPrefix(name, "grpc.") && got != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("List: health of %q = %v", name, got)
		}
	}
	for _, want := range []string{
		"grpc.health.v1.Health", "holdfast.iam.v2beta1.GroupsService", "holdfast.iam.v2.GroupsService",
	} {
		if !slices.Contains(services, want) {
			t.Errorf("reflection lists %q, without %s", services, want)
		}
	}
	for method := range strings.FieldsSeq("ListGroups CreateGroup UpdateGroup RequestGroupAccess") {
		w.describe(t, "holdfast.iam.v2.GroupsService", method)
	}
}

// TestApiCredentials sends tokens in all the ways in which clients send them, and checks which are accepted.
func TestApiCredentials(t *testing.T) {
	t.Parallel()
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	grpcTests := map[string]struct {
		values []string
		code   codes.Code
	}{
		"with the scheme":           {[]string{"Bearer " + w.Token}, codes.OK},
		"with the scheme in small":  {[]string{"bearer " + w.Token}, codes.OK},
		"without the scheme":        {[]string{w.Token}, codes.OK},
		"with another scheme":       {[]string{"Basic " + w.Token}, codes.Unauthenticated},
		"twice":                     {[]string{w.Token, w.Token}, codes.Unauthenticated},
		"with nothing but a scheme": {[]string{"Bearer "}, codes.Unauthenticated},
	}
	for name, tt := range grpcTests {
		t.Run("gRPC "+name, func(t *testing.T) {
			ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{"authorization": tt.values})
			_, err := iampb.NewGroupsServiceClient(w.conn).ListGroups(ctx, &iampb.ListGroupsRequest{})
			if status.Code(err) != tt.code {
				t.Errorf("%v, want %v", err, tt.code)
			}
		})
	}
	httpTests := map[string]struct {
		value string
		code  int
	}{
		"with the scheme":          {"Bearer " + w.Token, 200},
		"with the scheme in small": {"bearer " + w.Token, 200},
		"without the scheme":       {w.Token, 401},
		"with another scheme":      {"Basic " + w.Token, 401},
		"with nothing":             {"", 401},
		"with a changed signature": {"Bearer " + w.Token[:len(w.Token)-6] + "AAAAAA", 401},
		"with half of it":          {"Bearer " + w.Token[:len(w.Token)/2], 401},
	}
	for name, tt := range httpTests {
		t.Run("HTTP "+name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.BaseURL+"/iam/v2beta1/groups", nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.value != "" {
				r.Header.Set("Authorization", tt.value)
			}
			got := w.roundTrip(t, r)
			if got.status != tt.code {
				t.Errorf("HTTP status %d, want %d", got.status, tt.code)
			}
			if tt.code != http.StatusOK {
				checkInfo(t, got.fault(t))
			}
			if strings.Contains(got.body, w.Token[len(w.Token)-40:]) {
				t.Errorf("the answer repeats the token: %s", got.body)
			}
		})
	}
}

// TestApiPaths requests a resource with every valid spelling of its path and query. The answers must be the same.
func TestApiPaths(t *testing.T) {
	t.Parallel()
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	x := w.makeThings(t)
	below, org := url.QueryEscape(x.org), x.org
	spellings := map[string][]string{
		"get": {
			"/iam/v2beta1/groups/" + x.folder, "/iam/v2/groups/" + x.folder, "/iam/v2beta1/groups/" + x.folder + "/",
			"/iam/v2beta1/groups/" + strings.ReplaceAll(x.folder, "/", "%2F"),
			"/iam/v2/groups/" + strings.ReplaceAll(x.folder, "/", "%2f"),
			"/iam/v2beta1/groups/" + x.folder + "?unknown=ignored", "/iam/v2beta1/groups/" + x.folder + "?uid=" + org,
		},
		"list": {
			"/iam/v2beta1/groups?page_size=1&uidp.descendants_of=" + below + "&order_by=name%20desc",
			"/iam/v2beta1/groups/?pageSize=1&uidp.descendantsOf=" + below + "&orderBy=name+desc",
			"/iam/v2/groups?page_size=1&uidp.descendantsOf=" + below + "&order_by=name%20desc&unknown=1",
			"/iam/v2/groups/?pageSize=1&uidp.descendants_of=" + below + "&orderBy=name%20%20desc",
		},
		"get binding": {
			"/iam/v2beta1/roleBindings/" + x.binding, "/iam/v2/roleBindings/" + strings.ReplaceAll(x.binding, "/", "%2F") + "/",
		},
		"ping": {"/ping/v2beta1/ping", "/ping/v2/ping", "/ping/v2/ping/"},
	}
	for name, targets := range spellings {
		t.Run(name, func(t *testing.T) {
			first := w.send(t, w.Token, "GET", targets[0], "")
			if first.status != http.StatusOK {
				t.Fatalf("HTTP status %d: %s", first.status, first.body)
			}
			for _, target := range targets[1:] {
				if r := w.send(t, w.Token, "GET", target, ""); r.status != first.status || r.body != first.body {
					t.Errorf("%s: HTTP status %d\n%s, want the answer to %s\n%s", target, r.status, r.body, targets[0], first.body)
				}
			}
		})
	}
	t.Run("an organization at the collection", func(t *testing.T) {
		for name, target := range map[string]string{"one": "/iam/v2beta1/groups", "two": "/iam/v2/groups/"} {
			r := w.send(t, w.Token, "POST", target, `{"name":"`+name+`"}`)
			if r.status != http.StatusOK || strings.Contains(r.body, "/") {
				t.Errorf("POST %s: HTTP status %d\n%s", target, r.status, r.body)
			}
		}
	})
	t.Run("an update with both spellings of its mask", func(t *testing.T) {
		for _, name := range []string{"updateMask", "update_mask"} {
			r := w.send(t, w.Token, "PATCH", "/iam/v2beta1/groups/"+x.folder+"?"+name+"=description",
				`{"name":"ignored","description":"`+name+`"}`)
			if !strings.Contains(r.body, `"name":"folder","description":"`+name+`"`) {
				t.Errorf("%s: %s", name, r.body)
			}
		}
	})
}

// TestApiTransports checks that the API works over every transport that the port accepts.
func TestApiTransports(t *testing.T) {
	t.Parallel()
	cert, key, roots := selfSigned(t)
	trust := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	var http1, http2, h2c http.Protocols
	http1.SetHTTP1(true)
	http2.SetHTTP2(true)
	h2c.SetUnencryptedHTTP2(true)
	tests := map[string]struct {
		cfg       server.Config
		protocols map[string]*http.Protocols
		creds     credentials.TransportCredentials
	}{
		"plaintext": {
			server.Config{}, map[string]*http.Protocols{"HTTP/1.1": &http1, "HTTP/2.0": &h2c}, insecure.NewCredentials(),
		},
		"TLS": {
			server.Config{TLSCert: cert, TLSKey: key}, map[string]*http.Protocols{"HTTP/1.1": &http1, "HTTP/2.0": &http2},
			credentials.NewTLS(trust.Clone()),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := serve(t, storetest.SQLite(t), tt.cfg, nil)
			for want, protocols := range tt.protocols {
				client := &http.Client{Transport: &http.Transport{Protocols: protocols, TLSClientConfig: trust.Clone()}}
				w.speaks(t, client, want)
				client.CloseIdleConnections()
			}
			conn := w.dial(t, tt.creds, grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
			_, st := invoke(t, conn, "/holdfast.iam.v2beta1.GroupsService/ListGroups", w.Token, &iampb.ListGroupsRequest{})
			if st != nil {
				t.Error(st)
			}
		})
	}
}

// speaks lists groups and checks the HTTP version of the response.
func (w *world) speaks(t *testing.T, client *http.Client, version string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.BaseURL+"/iam/v2beta1/groups", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.Token)
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Proto != version || resp.StatusCode != http.StatusOK {
		t.Errorf("%s with HTTP status %d, want %s with 200", resp.Proto, resp.StatusCode, version)
	}
}

// selfSigned creates a certificate and a key for the loopback address. It returns their files, and a pool that trusts
// the certificate.
func selfSigned(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	roots = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(parsed)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret), roots
}
