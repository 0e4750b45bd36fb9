"""Pages without any part: the wheel has templates and files, and the guard stands before them."""

from http.client import HTTPConnection

from strandline.web import Listening, Parts, Site, access_of, bind, serving

listening = Listening()
bound = bind(listening)
access = access_of(listening, bound.getsockname()[1], allow_changes=False)


def get(path: str, token: str) -> tuple[int, str]:
    """Load a page."""
    connection = HTTPConnection("127.0.0.1", access.port)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


with serving(Site(access, Parts()), listening, bound):
    status, page = get("/", access.token)
    assert (status, "Overview" in page) == (200, True), page
    assert get("/static/app.css", access.token)[0] == 200
    assert get("/", "wrong")[0] == 401
