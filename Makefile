# `make` alone lists the targets. ARGS is passed to the program that run, watch, quick, lint, bench, escalation, soak,
# dist or image starts.

GO       ?= go
ARGS     ?=
FUZZTIME ?= 10s
ROLLS    ?= 20
HISTORIES ?= 10m
PLAY ?= 10m
PODS ?= 2000

# With -trimpath, what is compiled does not depend on the folder. So the tests, the releases that they make, the previous
# version and other clones share the build cache.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath)

# The race detector needs a C compiler, which a machine with Go may lack.
ifneq ($(shell command -v $(firstword $(shell $(GO) env CC)) 2>/dev/null),)
# It watches our code, and neither SQLite, which is C translated to Go and four times as slow when watched,
# nor the hashing of passwords. (A package that instantiates generic types must be watched: others share the instances.)
unwatched = -race=false -d=checkptr=0
RACEFLAGS ?= -race -gcflags=all=-d=checkptr=0 -gcflags='modernc.org/sqlite/lib=$(unwatched)' \
	-gcflags='golang.org/x/crypto/argon2=$(unwatched)'
else
RACEFLAGS ?=
$(if $(filter test-concurrent race,$(MAKECMDGOALS)),$(warning no C compiler: testing without the race detector))
endif

# The packages that `make test` tests with the race detector: goroutines share memory in them (caches, queues, limits).
# The detector makes a test four times as slow, and everything that the test imports is built once more, so the list
# has only packages that are tested in seconds and import little. In the other packages, requests share only the
# database, or it takes minutes to build or test them. `make race` tests all packages with the detector.
CONCURRENT = ./internal/access/authz ./internal/access/budget ./internal/events/denials ./internal/events/event \
	./internal/platform/fairlimit ./internal/platform/outbound ./internal/registry/pulllog ./internal/registry/upstream \
	./internal/signin/issuers ./internal/signin/sts ./internal/signin/token ./internal/store/engine \
	./internal/store/readbatch

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the server, the command and the provider for kubelets into bin/, without C
	@echo "building into bin/; the first build takes some minutes"
	CGO_ENABLED=0 $(GO) build -o bin/holdfastd ./cmd/holdfastd
	CGO_ENABLED=0 $(GO) build -ldflags '-s -w' -o bin/holdfast ./cmd/holdfast
	CGO_ENABLED=0 $(GO) build -ldflags '-s -w' -o bin/holdfast-credential-provider ./cmd/holdfast-credential-provider

.PHONY: kube
kube: ## Build holdfast-kube, the program for Kubernetes clusters, into bin/
	CGO_ENABLED=0 $(GO) build -C kube -trimpath -ldflags '-s -w' -o ../bin/holdfast-kube .

.PHONY: run
run: build ## Start the server in dev mode, on SQLite; it prints a curl line to try
	bin/holdfastd --dev $(ARGS)

.PHONY: watch
watch: ## Start the server in dev mode; build and restart it, and build the console, when a file changes
	@scripts/watch $(ARGS)

.PHONY: quick
quick: ## Check the format of the packages that differ from main, vet them, and run their tests on SQLite
	@scripts/quick $(ARGS)

.PHONY: test
test: ## Run every test, long ones in a short version, on SQLite and a throwaway PostgreSQL; installs what they need
	@MAKE='$(MAKE)' scripts/test

.PHONY: test-all
test-all: ## Run every test in its complete version
	@HOLDFAST_TEST_ALL=yes MAKE='$(MAKE)' scripts/test

.PHONY: prepare test-prepare
test-prepare: prepare
prepare: ## Install and build what the tests need; PARTS='s3 browser' for a part of it
	@scripts/prepare $(PARTS)

# The phases of scripts/test. The longest packages come first. Everything but test-concurrent runs without the race
# detector and is built without C, so that it is built once. test-packages leaves out the packages of test-concurrent,
# which runs the same tests. The tests of the whole server run several at a time on two processors, because they wait
# much. lint vets. test/ is a module of its own.
.PHONY: test-packages
test-packages:
	export CGO_ENABLED=0; status=0; \
	elsewhere="$$($(GO) list ./cmd/holdfast $(CONCURRENT))" || exit 1; \
	scripts/with-postgres $(GO) test -count=1 -vet=off -timeout 60m \
		./internal/store ./internal/vuln/query $$($(GO) list ./... | grep -vxF "$$elsewhere") || status=1; \
	scripts/with-postgres $(GO) test -C test -count=1 -vet=off -timeout 60m ./bench/... ./e2e/escalation || status=1; \
	exit $$status

.PHONY: test-concurrent
test-concurrent:
	scripts/with-postgres $(GO) test -count=1 -vet=off -timeout 60m $(RACEFLAGS) $(CONCURRENT)

.PHONY: test-server
test-server:
	export CGO_ENABLED=0; \
	scripts/with-postgres $(GO) test -count=1 -vet=off -parallel 3 -timeout 60m ./cmd/holdfast & \
	command=$$!; \
	scripts/with-postgres $(GO) test -C test -count=1 -vet=off -parallel 3 -timeout 60m ./e2e/browser & \
	browser=$$!; \
	scripts/with-postgres $(GO) test -C test -count=1 -vet=off -parallel 6 -timeout 60m ./e2e; \
	status=$$?; wait $$command || status=1; wait $$browser || status=1; exit $$status

# The tests of other modules leave the processors to the tests of the server.
.PHONY: test-deploy
test-deploy:
	cd kube && CGO_ENABLED=0 nice -n 10 $(GO) test -count=1 -vet=off -timeout 60m ./...
	cd deploy && CGO_ENABLED=0 nice -n 10 $(GO) test -count=1 -vet=off -timeout 60m ./...

.PHONY: test-console
test-console:
	cd console && $(node) npm run --silent check && $(node) npm test --silent

.PHONY: test-release
test-release:
	cd release && CGO_ENABLED=0 nice -n 10 $(GO) test -count=1 -vet=off -timeout 60m ./...

.PHONY: race
race: export HOLDFAST_TEST_ALL = yes
race: prepare ## Run the complete tests of all packages and of the whole server with the race detector
	scripts/with-postgres $(GO) test -count=1 -vet=off -timeout 60m $(RACEFLAGS) ./...
	scripts/with-postgres scripts/with-browser $(GO) test -C test -count=1 -vet=off -timeout 60m $(RACEFLAGS) ./...

.PHONY: kubernetes
kubernetes: ## Try holdfast-kube with a real API server of Kubernetes; PODS=2000 is how many pods are created
	scripts/prepare modules programs kubernetes
	cd deploy && CGO_ENABLED=0 HOLDFAST_TEST_PREPARED=yes HOLDFAST_TEST_LATENCY=yes \
		$(GO) test -count=1 -timeout 60m -v -run 'TestCluster' . -pods $(PODS)

.PHONY: walks
walks: prepare ## Walk through the console on both engines, and inspect every page; make test does less
	CGO_ENABLED=0 HOLDFAST_TEST_ALL=yes scripts/with-postgres scripts/with-browser \
		$(GO) test -C test -count=1 -vet=off -parallel 3 -timeout 30m ./e2e/browser

.PHONY: fresh
fresh: ## Repeat the preparation of the tests with empty caches, as on a new machine
	@scripts/fresh

.PHONY: check
check: generated built format lint fresh test-all race ## Everything a change must pass before it is sent

.PHONY: gen
gen: ## Write gen/ from proto/
	$(GO) run ./proto/generate

.PHONY: console
console: console/node_modules/.package-lock.json ## Build the console into console/dist, with Node.js
	cd console && $(node) npm run --silent build

node := PATH="$(CURDIR)/bin/test/node/bin:$$PATH"
console/node_modules/.package-lock.json: console/package-lock.json
	@scripts/prepare node
	cd console && $(node) npm ci --no-audit --no-fund --loglevel=error
	@touch $@

.PHONY: bench
bench: ## Measure against the targets, on both engines
	HOLDFAST_TEST_FSYNC=on scripts/with-postgres scripts/with-browser $(GO) run -C test ./bench $(ARGS)

.PHONY: escalation
escalation: ## Play against authorization for ten minutes on each engine; ARGS=-seed=N plays from there
	scripts/with-postgres $(GO) test -C test -count=1 -timeout 60m -v ./e2e/escalation -duration 10m $(ARGS)

.PHONY: soak
soak: ## Load the server for an hour, kill it a thousand times, upgrade and step back ROLLS times (20), move 100,000 advisories
	scripts/with-postgres $(GO) test -C test -count=1 -timeout 3h -v ./e2e -run 'TestSteady$$' -steady 1h
	scripts/with-postgres $(GO) test -C test -count=1 -timeout 6h -v ./e2e -run 'TestCrash$$' -kills 1000 $(ARGS)
	scripts/prepare haproxy previous
	HOLDFAST_TEST_ROLLS=$(ROLLS) scripts/with-postgres $(GO) test -C test -count=1 -timeout 12h -v ./e2e -run TestRollingUpgrade
	scripts/with-postgres $(GO) test -C test -count=1 -timeout 2h -v ./e2e -run 'TestBackup$$' -advisories 100000

.PHONY: histories
histories: ## Check for HISTORIES (10m) on each engine what servers answer while they are paused, killed and cut off
	HOLDFAST_TEST_HISTORIES=$(HISTORIES) scripts/with-postgres \
		$(GO) test -C test -count=1 -timeout 12h -v ./e2e -run 'TestHistories' $(ARGS)

.PHONY: play
play: ## Compare findings and refusals for PLAY (10m) on each engine with a model, while everything changes randomly
	scripts/with-postgres $(GO) test -count=1 -timeout 12h -v ./internal/vuln/query -run 'TestVulnerabilities' \
		-play=$(PLAY) $(ARGS)

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (10s)
	scripts/fuzz $(FUZZTIME)

.PHONY: dist
dist: ## Write archives, packages, SBOMs and sums of a release into dist/files, and check it; ARGS='-version v1.2.3'
	cd release && $(GO) run . dist -source $(CURDIR) -out $(CURDIR)/dist/files $(ARGS)
	cd release && $(GO) run . check -source $(CURDIR) $(CHECK)

.PHONY: check-release
check-release: ## Check the image of the server with published advisories and our own rule; CHECK='-advisories FILE -required'
	cd release && $(GO) run . check -source $(CURDIR) $(CHECK)

.PHONY: image
image: ## Write the image of the server into dist/image; ARGS='-push host/repo:tag' pushes it
	cd release && $(GO) run . image -source $(CURDIR) -out $(CURDIR)/dist/image $(ARGS)

.PHONY: reproduce
reproduce: ## Build a whole release twice, without a shared cache, and compare; takes long
	cd release && $(GO) test -count=1 -timeout 3h -v -run TestSameBytes . -every-platform

.PHONY: lint
lint: bin/golangci-lint bin/actionlint ## Run the linters on every Go module and on the workflows; ARGS=--fix repairs findings
	@scripts/lint $(ARGS)

.PHONY: clean
clean: ## Remove what the other targets built
	rm -rf bin dist

# Each linter has a module of its own, because its dependencies are not the server's. A linter must be built with the
# version of Go that the server uses, or a newer one.
bin/golangci-lint: tools/lint/go.mod tools/lint/go.sum go.mod
	cd tools/lint && CGO_ENABLED=0 GOBIN=$(CURDIR)/bin $(GO) install tool
	@touch $@

bin/actionlint: tools/actionlint/go.mod tools/actionlint/go.sum
	cd tools/actionlint && CGO_ENABLED=0 GOBIN=$(CURDIR)/bin $(GO) install tool
	@touch $@

.PHONY: generated
generated: gen
	git diff --exit-code -- gen
	@new=$$(git ls-files --others --exclude-standard -- gen) && \
	if [ -n "$$new" ]; then echo "not committed:" $$new >&2; exit 1; fi

# console/dist is what its sources become, byte for byte, wherever they are built.
.PHONY: built
built: console/node_modules/.package-lock.json
	cd console && export $(node) && npm run --silent types && npx --no-install tsc && \
		npx --no-install vite build --logLevel error --emptyOutDir --outDir $(CURDIR)/bin/console
	diff -r console/dist bin/console

.PHONY: format
format:
	@bad=$$(find . -name '*.go' -not -path './gen/*' -exec gofmt -l {} +) && \
	if [ -n "$$bad" ]; then echo "run gofmt -w on:" $$bad >&2; exit 1; fi
	cd release && $(GO) mod tidy -diff
	cd test && $(GO) mod tidy -e -diff 2>/dev/null
	$(GO) mod tidy -e -diff 2>/dev/null # -e: a test of a dependency needs a module that cannot be had everywhere
