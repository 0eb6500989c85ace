// Command dex runs the OpenID provider dex for the browser tests, with one client and one person.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	gosundheit "github.com/AppsFlyer/go-sundheit"
	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/server/signer"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/bcrypt"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:5556", "host:port")
	id := flag.String("client-id", "holdfast", "the client")
	secret := flag.String("client-secret", "", "its secret; none makes it public")
	redirect := flag.String("redirect", "", "where it receives people")
	email := flag.String("email", "ann@example.com", "the person")
	password := flag.String("password", "", "their password")
	group := flag.String("group", "eng", "a group of theirs")
	flag.Parse()
	if err := run(*listen, storage.Client{
		ID: *id, Secret: *secret, Public: *secret == "", Name: "Holdfast", RedirectURIs: []string{*redirect},
	}, *email, *password, *group); err != nil {
		log.Fatal(err)
	}
}

func run(listen string, client storage.Client, email, password, group string) error {
	ctx := context.Background()
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	hash, err := bcrypt.GenerateFromPassword([]byte(password), 10)
	if err != nil {
		return err
	}
	s := storage.WithStaticClients(memory.New(quiet), []storage.Client{client})
	s = storage.WithStaticPasswords(s, []storage.Password{{
		Email: email, Hash: hash, Username: "ann", Name: "Ann Example", UserID: "ann-at-dex", Groups: []string{group},
	}}, quiet)
	s = storage.WithStaticConnectors(s, []storage.Connector{{ID: "local", Type: "local", Name: "Email"}})
	keys := signer.LocalConfig{KeysRotationPeriod: "24h"}
	sign, err := keys.Open(ctx, s, time.Hour, time.Now, quiet)
	if err != nil {
		return err
	}
	sign.Start(ctx)
	d, err := server.NewServer(ctx, server.Config{
		Issuer: "http://" + listen, Storage: s, SkipApprovalScreen: true, Logger: quiet, Signer: sign,
		PrometheusRegistry: prometheus.NewRegistry(), HealthChecker: gosundheit.New(), Web: server.WebConfig{Issuer: "dex"},
	})
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	return http.Serve(l, d)
}
