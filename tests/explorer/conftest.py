"""Fixtures of the explorer's tests: a client, and a saved run."""

import pytest

pytest.importorskip("flask", reason="needs Flask: pip install 'cutepy[explore]'")
pytest.importorskip("numpy", reason="needs numpy: pip install 'cutepy[explore]'")


@pytest.fixture(scope="session")
def saved_run(tmp_path_factory):
    from tests.sim.kernels.handover import handed_over

    return handed_over().save(tmp_path_factory.mktemp("run") / "handover.cutepy")


@pytest.fixture(scope="session")
def application(saved_run):
    from cutepy.explorer.app import create_app

    app = create_app(runs=(saved_run,))
    yield app
    app.extensions["calculator"].close()


@pytest.fixture
def client(application):
    return application.test_client()
