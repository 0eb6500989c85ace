// Package mailtest runs an SMTP server for tests. The server keeps the messages that it receives.
package mailtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// A Server is an SMTP server that keeps the messages that it receives.
type Server struct {
	Address string
	Roots   *x509.CertPool // certificate authority that signed its certificate

	mu     sync.Mutex
	got    []Message
	users  []string
	refuse map[string]*smtp.SMTPError
}

// A Message is a message that the server has received.
type Message struct {
	From string
	To   []string
	Data string
}

// Config configures a Server.
type Config struct {
	TLS      bool // whether the server has a certificate
	Implicit bool // whether connections begin with TLS
	User     string
	Password string // clients must sign in with this password; "" means that they need not sign in
}

// Start starts a server that runs until the test ends.
func Start(t testing.TB, cfg Config) *Server {
	t.Helper()
	s := &Server{refuse: map[string]*smtp.SMTPError{}}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Address = listener.Addr().String()
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) {
		return &session{server: s, cfg: cfg}, nil
	}))
	server.Domain, server.AllowInsecureAuth = "localhost", !cfg.TLS
	server.ReadTimeout, server.WriteTimeout = time.Minute, time.Minute
	if cfg.TLS {
		certificate, roots := newCertificate(t)
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
		s.Roots = roots
	}
	if cfg.Implicit {
		listener = tls.NewListener(listener, server.TLSConfig)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close() // the connections that are still open belong to clients
		if err := <-ended; err != nil && !errors.Is(err, smtp.ErrServerClosed) {
			t.Errorf("the mail server ended: %v", err)
		}
	})
	return s
}

// Refuse makes the server refuse a recipient with a code; 0 makes it accept the recipient again.
func (s *Server) Refuse(recipient string, code int, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.refuse, recipient); code != 0 {
		s.refuse[recipient] = &smtp.SMTPError{
			Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 1, 1}, Message: text,
		}
	}
}

// Messages returns the messages that the server has received so far.
func (s *Server) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Message{}, s.got...)
}

// Users returns the names of the users that have tried to sign in.
func (s *Server) Users() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.users...)
}

// Await returns the messages as soon as there are n, and fails the test if that
// takes too long.
func (s *Server) Await(t testing.TB, n int) []Message {
	t.Helper()
	testkit.Until(t, func() bool { return len(s.Messages()) >= n })
	return s.Messages()
}

type session struct {
	server *Server
	cfg    Config
	known  bool
	now    Message
}

func (s *session) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		s.server.mu.Lock()
		s.server.users = append(s.server.users, user)
		s.server.mu.Unlock()
		if user != s.cfg.User || password != s.cfg.Password {
			return smtp.ErrAuthFailed
		}
		s.known = true
		return nil
	}), nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if s.cfg.Password != "" && !s.known {
		return smtp.ErrAuthRequired
	}
	s.now = Message{From: from}
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if err := s.server.refuse[to]; err != nil {
		return err
	}
	s.now.To = append(s.now.To, to)
	return nil
}

func (s *session) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.now.Data = string(b)
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.got = append(s.server.got, s.now)
	return nil
}

func (s *session) Reset()        { s.now = Message{} }
func (s *session) Logout() error { return nil }

func newCertificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}
